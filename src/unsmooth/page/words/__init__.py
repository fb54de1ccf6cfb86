"""What the page says in sentences: each follows from the numbers it is made of."""
