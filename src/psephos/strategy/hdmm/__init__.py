"""HDMM: strategies found by optimisation (McKenna et al. 2018)."""
