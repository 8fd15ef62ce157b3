"""What the tests of effects share."""


def of(result, stage):
    """The effect of a stage of this file (all are called after it) or of the folder."""
    prefix = f"credit/{stage}/effect_"
    return {k.removeprefix(prefix): v for k, v in result.metrics.items() if k.startswith(prefix)}
