"""Estimates, variance and the error certificate from retained tokens alone (tensors only; section 3).

Let a_i = exp(logit_i). The logit offset log(1/pi_i) turns the softmax over the kept tokens into the Hajek
estimator (eq. 3), with weights w_i = (a_i / pi_i) / N and N the sum of a_i / pi_i. Everything below is
written in these weights, so no exponential is ever formed outside a softmax. Tokens with pi = 1 add
exactly zero to variance and range, so the certainty set needs no mask. Arithmetic is float32 or better:
log(1/pi) in bfloat16 alone costs a weight error of 3 %.

Legend: ... any leading axes, N kept tokens, D head dimension.
"""

import math

import torch


def logit_offset(pi: torch.Tensor) -> torch.Tensor:
    """log(1/pi) in float32: added to the logit of a kept token it performs the Hajek correction (eq. 3)."""
    return -torch.log(pi).float()


def squared_distances(
    values_ND: torch.Tensor, estimates_CD: torch.Tensor, value_norms_N: torch.Tensor
) -> torch.Tensor:
    """|v_i - y|^2 = |v|^2 - 2 v.y + |y|^2 for C estimates that share the values, shape (..., C, N).

    |v|^2 is given; rounding never makes a distance negative.
    """
    return distances_of(estimates_CD @ values_ND.transpose(-1, -2), estimates_CD, value_norms_N)


def distances_of(
    products_CN: torch.Tensor, estimates_CD: torch.Tensor, value_norms_N: torch.Tensor
) -> torch.Tensor:
    """The same from the products v.y."""
    own = estimates_CD.square().sum(-1, keepdim=True)
    return (value_norms_N.unsqueeze(-2) - 2 * products_CN + own).clamp_min(0)


def with_exact_distance(
    distances_CN: torch.Tensor,
    values_ND: torch.Tensor,
    estimates_CD: torch.Tensor,
    weights_CN: torch.Tensor,
) -> torch.Tensor:
    """The distances with the heaviest token's taken directly.

    Where one token has nearly all the weight the estimate all but equals its value, and the difference
    of squares is rounding noise; no second token can come as close.
    """
    top = weights_CN.argmax(-1, keepdim=True)
    value = values_ND.gather(-2, top.expand(*top.shape[:-1], values_ND.shape[-1]))
    return distances_CN.scatter(-1, top, (value - estimates_CD).square().sum(-1, keepdim=True))


def variance_terms(
    weights_N: torch.Tensor, not_pi_N: torch.Tensor, distances_N: torch.Tensor
) -> torch.Tensor:
    """(1 - pi_i) w_i^2 |v_i - y|^2: their sum is V of Theorem 2, their largest is b squared.

    `not_pi_N` is 1 - pi, `distances_N` the squared distances.
    """
    return not_pi_N * weights_N.square() * distances_N


def radius(
    variance: torch.Tensor,
    largest_term: torch.Tensor,
    estimate_norm: torch.Tensor,
    delta: float,
    norm_floor: float,
) -> torch.Tensor:
    """Eq. (4): (sqrt(2 V log(1/delta)) + b log(1/delta)) / (|y| + floor), b = sqrt(largest term).

    Relative to the norm of the attention output; at per-step confidence 1 - delta.
    """
    log_level = math.log(1 / delta)
    bound = torch.sqrt(2 * variance * log_level) + torch.sqrt(largest_term) * log_level
    return bound / (estimate_norm + norm_floor)


def normalised_entropy(weights_N: torch.Tensor, retained: torch.Tensor) -> torch.Tensor:
    """Entropy of softmax weights over the log of the retained size; needs a retained size of 2 or more."""
    entropy: torch.Tensor = torch.special.entr(weights_N).sum(-1)
    return entropy / torch.log(retained)
