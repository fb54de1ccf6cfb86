"""Why features smooth or sharpen: spectra of weights and attention, exponents, predicted against measured."""
