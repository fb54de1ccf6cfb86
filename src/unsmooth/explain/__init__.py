"""Why features smooth or sharpen: spectra of H and A, dominance, exponents, limits, simulation."""

from unsmooth.explain.dominance import Dominance, Pair, dominance
from unsmooth.explain.explainer import Explainer, explain
from unsmooth.explain.explanation import Explanation, load_explanation
from unsmooth.explain.exponent import LayerExponent, layer_exponent
from unsmooth.explain.folding import Folded, fold
from unsmooth.explain.lemma2 import LemmaCase, corollary3, lemma2
from unsmooth.explain.limits import limit
from unsmooth.explain.simulate import Simulation, simulate
from unsmooth.explain.spectrum import AttentionSpectrum, HSpectrum, spectrum_of_attention, spectrum_of_h
from unsmooth.explain.stochastic import attention_entropy

__all__ = [
    "AttentionSpectrum",
    "Dominance",
    "Explainer",
    "Explanation",
    "Folded",
    "HSpectrum",
    "LayerExponent",
    "LemmaCase",
    "Pair",
    "Simulation",
    "attention_entropy",
    "corollary3",
    "dominance",
    "explain",
    "fold",
    "layer_exponent",
    "lemma2",
    "limit",
    "load_explanation",
    "simulate",
    "spectrum_of_attention",
    "spectrum_of_h",
]
