"""Which strategy the settings choose for types that say nothing themselves."""

from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.protocol.allocation.threshold import ThresholdAllocation
from sharding_app.settings.schema import Settings


def test_the_default_is_the_newer_algorithm_with_the_limits_that_were_set() -> None:
    strategy = Settings(rebalance_absolute_limit=7, rebalance_relative_limit=0.5).allocation
    assert isinstance(strategy, LeastShardAllocation)
    assert (strategy.absolute_limit, strategy.relative_limit) == (7, 0.5)


def test_an_absolute_limit_of_0_chooses_the_older_algorithm() -> None:
    settings = Settings(rebalance_absolute_limit=0, rebalance_threshold=2, max_simultaneous_rebalance=9)
    strategy = settings.node().strategy_of("shop.Cart")
    assert isinstance(strategy, ThresholdAllocation)
    assert (strategy.threshold, strategy.max_simultaneous) == (2, 9)
