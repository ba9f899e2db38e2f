"""The rules of `robust`, which add to fused scores: neighbours, sessions, speakers.

Invariant: pure functions of the candidates' scores and features.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..recipes import ConversationRules
from .features import Features
from .fusion import neighbour_values, session_values

Floats = npt.NDArray[np.float64]


def rule_shares(fused: Floats, features: Features, rules: ConversationRules) -> dict[str, Floats]:
    """What the rules add to fused scores: ``previous``, ``next``, ``session``, ``speaker``, each (m,) float64.

    The session's mean is taken after the neighbours are added.
    """
    short = features.words <= rules.max_words
    previous = rules.previous * np.where(short, neighbour_values(fused, features.previous), 0.0)
    following = rules.following * np.where(short, neighbour_values(fused, features.following), 0.0)
    session = session_values(fused + previous + following, features.session, rules.session_best)
    return {
        "previous": previous,
        "next": following,
        "session": rules.session * session,
        "speaker": np.where(features.named, rules.speaker, 0.0),
    }
