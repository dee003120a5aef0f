import pytest


@pytest.fixture
def trace():
    """A trace small enough to be read: 8 tokens in 4 runs of the target, at gamma = 2."""
    return {
        "gamma": 2,
        "target": "large",
        "draft": "small",
        "source": "The cat sits on the mat.",
        "text": "Die Katze sitzt auf der Matte.",
        "rounds": [
            {"drafted": ["▁Die", "▁Hund"], "accepted": 1, "extra": "▁Katze"},
            {"drafted": ["▁sitz", "t"], "accepted": 2, "extra": "▁auf"},
            {"drafted": ["▁dem", "▁Dach"], "accepted": 0, "extra": "▁der"},
            {"drafted": ["▁Matte", "."], "accepted": 2, "extra": ""},
        ],
        "seconds": {
            "target_encoder": 0.030,
            "draft_encoder": 0.005,
            "target_step": 0.050,
            "verify": 0.060,
            "draft_step": 0.004,
        },
    }


@pytest.fixture
def plain_trace(trace):
    """The same text by plain decoding, a token per run."""
    pieces = ["▁Die", "▁Katze", "▁sitz", "t", "▁auf", "▁der", "▁Matte", "."]
    rounds = [{"drafted": [], "accepted": 0, "extra": piece} for piece in pieces]
    return trace | {"gamma": 0, "rounds": rounds}
