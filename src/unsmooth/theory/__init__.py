"""Definitions on matrices: spectra of H and A, dominance, exponents, limits, simulation; no model is known here."""

from unsmooth.theory.constant import FixedPoint, exponent_with_constant, fixed_point
from unsmooth.theory.dominance import Dominance, Pair, dominance
from unsmooth.theory.exponent import LayerExponent, layer_exponent
from unsmooth.theory.folding import Folded, fold
from unsmooth.theory.lemma2 import LemmaCase, corollary3, lemma2
from unsmooth.theory.limits import limit
from unsmooth.theory.simulate import Simulation, simulate
from unsmooth.theory.spectrum import AttentionSpectrum, HSpectrum, spectrum_of_attention, spectrum_of_h
from unsmooth.theory.stochastic import attention_entropy

__all__ = [
    "AttentionSpectrum",
    "Dominance",
    "FixedPoint",
    "Folded",
    "HSpectrum",
    "LayerExponent",
    "LemmaCase",
    "Pair",
    "Simulation",
    "attention_entropy",
    "corollary3",
    "dominance",
    "exponent_with_constant",
    "fixed_point",
    "fold",
    "layer_exponent",
    "lemma2",
    "limit",
    "simulate",
    "spectrum_of_attention",
    "spectrum_of_h",
]
