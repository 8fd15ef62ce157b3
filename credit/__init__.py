"""Credit assignment for group rollouts: which step of which trajectory earned what.

A *method* is a short ordered list of *stages* (one file each, see `credit.registry`) run by
`credit.pipeline.Pipeline` over one `credit.base.StepTable`. Pure numpy: no torch, no global random state.
"""
