"""Evaluation of a policy on a fixed split and reports of a run."""
