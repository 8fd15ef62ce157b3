"""Token rows of trajectories, for tests that compare what was sampled with a learner's forward pass."""

import torch


def token_rows(groups):
    """Returns [(ids of a row, [(start of a response, step)])] over all trajectories."""
    rows = []
    for trajectory in (trajectory for group in groups for trajectory in group):
        for step in trajectory.steps:
            if step.fresh:
                rows.append(([], []))
            ids, spans = rows[-1]
            ids += step.prompt_ids
            spans.append((len(ids), step))
            ids += step.response_ids
    return rows


@torch.no_grad()
def worst_disagreement(model, groups, temperature):
    """Returns the largest |logp_sampled − log-probability of a full forward pass| over all tokens."""
    worst = 0.0
    for ids, spans in token_rows(groups):
        logp_LV = torch.log_softmax(model(torch.tensor([ids])).logits[0].float() / temperature, dim=-1)
        for start, step in spans:
            for offset, (token, logp) in enumerate(zip(step.response_ids, step.logp_sampled, strict=True)):
                worst = max(worst, abs(logp_LV[start + offset - 1, token].item() - logp))
    return worst
