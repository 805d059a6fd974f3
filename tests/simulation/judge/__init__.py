"""The judge of a simulated cluster: models of what has to hold, that share no code with the engine.

Here belong readings of bytes by ``struct``, and rules in the judge's own words. What a judge knows comes through
``tests.simulation.facts``; nothing here imports ``tierlog``.
"""

from tests.simulation.judge.cluster_judge import ClusterJudge

__all__ = ["ClusterJudge"]
