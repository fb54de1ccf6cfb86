"""SuperGLUE: seven tasks that an encoder is fine-tuned on."""
