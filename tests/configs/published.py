"""The settings that methods were published with, written by hand from the public files."""

VERL = "genalyu/3SPO@da384457"
GRAPH = "zzj1111/alfworldauto@37aec781 recipe/GraphGPO"
T2PO = "WillDreamer/T2PO@bb92004a examples"
SDAR = "asayu255/SDAR@83a8c9fa examples"
DYNAMIC = {"credit.dynamic_sampling.max_batches": 10, "train.clip_low": 0.2, "train.clip_high": 0.28}
SSO = {"credit.sso.alpha_s": 50.0, "credit.sso.xi": 10.0, "credit.sso.zeta": 0.1, "credit.sso.omega_k": 0.1}
GIGPO = {"credit.gigpo.omega": 1.0}
HGPO = {"credit.hgpo.history": 2, "credit.hgpo.alpha": 1.0, "credit.hgpo.base_group": False,
        "prompt.history": 2, "prompt.window": 4096 + 512, "train.updates": 160}  # fmt: skip
GRAPHGPO = {**GIGPO, "credit.gigpo.norm": "mean_std", "credit.graphgpo.normalize_distance": False}
T2 = {**GIGPO, "credit.t2po.eta": 0.3, "credit.t2po.max_try": 2, "prompt.parse": "strict",
      "train.entropy_coef": 0.0, "train.updates": 200, "eval.every": 10, "eval.temperature": 0.6}  # fmt: skip
RLSD = {"credit.rlsd.lam": 0.5, "credit.rlsd.clip": 0.2, "credit.rlsd.decay": 100}
OPSD = {"credit.opsd.coef": 0.01 / 2, "credit.opsd.weight": "constant"}  # a gate of sigmoid(0) on 0.01

# (method, environment) → where it was read, and every option it sets
READ = {
    ("grpo", "alfworld"): (f"{VERL} examples/grpo_trainer/run_alfworld.sh", {"credit.grpo.norm": "mean_std"}),
    ("grpo", "webshop"): (f"{VERL} examples/grpo_trainer/run_webshop.sh", {"credit.grpo.norm": "mean_std"}),
    ("rloo", "alfworld"): (f"{VERL} examples/rloo_trainer/run_alfworld.sh", {}),
    ("rloo", "webshop"): (f"{VERL} examples/rloo_trainer/run_webshop.sh", {}),
    **{
        ("dapo", world): (
            f"{VERL} examples/dapo_trainer/run_{world}.sh",
            {**DYNAMIC, "credit.grpo.norm": "mean_std", "train.kl_coef": 0.01},
        )
        for world in ("alfworld", "webshop")
    },
    ("gigpo", "alfworld"): (
        f"{VERL} examples/gigpo_trainer/run_alfworld.sh",
        {**GIGPO, "credit.gigpo.norm": "mean_std"},
    ),
    ("gigpo", "webshop"): (
        f"{VERL} examples/gigpo_trainer/run_webshop.sh",
        {**GIGPO, "credit.gigpo.norm": "mean"},
    ),
    ("gigpo_dynamic", "alfworld"): (
        f"{VERL} examples/gigpo_dynamic_trainer/run_alfworld.sh",
        {**GIGPO, **DYNAMIC, "credit.gigpo.norm": "mean_std"},
    ),
    ("gigpo_dynamic", "webshop"): (
        f"{VERL} examples/gigpo_dynamic_trainer/run_webshop.sh",
        {**GIGPO, **DYNAMIC, "credit.gigpo.norm": "mean"},
    ),
    ("hgpo", "alfworld"): (
        f"{VERL} recipe/hgpo/run_qwen2.5_1.5b_alfworld_train.sh",
        {**HGPO, "credit.hgpo.norm": "mean_std", "env.max_steps": 50},
    ),
    ("hgpo", "webshop"): (
        f"{VERL} recipe/hgpo/run_qwen2.5_1.5b_webshop_train.sh",
        {**HGPO, "credit.hgpo.norm": "mean", "env.max_steps": 30},
    ),
    ("graphgpo", "alfworld"): (
        f"{GRAPH}/run_qwen2.5_1.5b_alfworld_train.sh",
        {**GRAPHGPO, "credit.graphgpo.gamma": 0.1, "env.anchor": "state"},
    ),
    ("graphgpo", "webshop"): (
        f"{GRAPH}/run_qwen2.5_1.5b_webshop_train.sh",
        {
            **GRAPHGPO,
            "credit.graphgpo.gamma": 0.2,
            "env.options.mode": "text_rich",
            "prompt.window": 5120 + 512,
        },
    ),
    ("3spo", "alfworld"): (
        f"{VERL} examples/3spo_trainer/run_alfworld_1.5B.sh",
        {**SSO, "credit.state_mean.norm": "mean", "train.updates": 400, "eval.every": 50},
    ),
    ("3spo", "webshop"): (
        f"{VERL} examples/3spo_trainer/run_webshop.sh",
        {**SSO, "credit.state_mean.norm": "mean", "train.updates": 150, "eval.every": 5},
    ),
    ("sso", "alfworld"): (f"{VERL} examples/3spo_trainer/run_alfworld_1.5B.sh", SSO),
    ("sso", "webshop"): (f"{VERL} examples/3spo_trainer/run_webshop.sh", SSO),
    ("t2po", "alfworld"): (
        f"{T2PO}/embody_agent_trainer/train_alfworld.sh",
        {
            **T2,
            "credit.gigpo.norm": "mean_std",
            "prompt.max_response_tokens": 500,
            "prompt.window": 2048 + 500,
        },
    ),
    ("t2po", "webshop"): (
        f"{T2PO}/shop_agent_trainer/train_webshop.sh",
        {
            **T2,
            "credit.gigpo.norm": "mean",
            "prompt.max_response_tokens": 300,
            "prompt.window": 4096 + 300,
            "train.kl_coef": 0.0,
            "train.minibatch_rows": 128,
        },
    ),
    ("copo", "alfworld"): (
        "rhyang2021/CogRouter@66ed8e6b examples/copo_trainer/run_alfworld.sh",
        {
            "credit.copo.k": 2.0,
            "credit.grpo.norm": "mean",
            "env.max_steps": 30,
            "rollout.group_size": 4,
            "prompt.history": 10,
            "prompt.max_response_tokens": 1024,
            "prompt.window": 18000 + 1024,
            "train.updates": 200,
            "train.lr": 5e-7,
            "train.kl_coef": 0.1,
            "train.minibatch_rows": 32,
        },
    ),
    **{
        (method, world): (f"{SDAR}/{folder}/run_{world}_7b.sh", options)
        for world in ("alfworld", "webshop")
        for method, folder, options in (
            ("sdar", "sdar_trainer", {"credit.sdar.coef": 0.01, "credit.sdar.slope": 5.0}),
            ("rlsd", "rlsd_trainer", RLSD),
            ("opsd", "grpo_opsd_trainer", OPSD),
        )
    },
    ("agentopsd", "alfworld"): (
        "zhangdw156/AgentOPSD@8c24ad05 examples/agentopsd_trainer_1.5b/run_alfworld.sh",
        {"credit.agentopsd.lam": 0.5},
    ),
    ("agentopsd", "webshop"): (
        "zhangdw156/AgentOPSD@4c16175a examples/agentopsd_trainer_1.5b/run_webshop.sh",
        {"credit.agentopsd.lam": 0.5},
    ),
    **{
        ("empg", world): (
            f"WillDreamer/ARLArena@dc1da9f7 recipe/{folder}/ppo/core_algos.py",
            {"credit.empg.k": 1.0, "credit.empg.k_future": 1.0, "credit.empg.zeta": 0.05},
        )
        for world, folder in (("alfworld", "world_agent"), ("webshop", "shop_agent"))
    },
}
WRAPPERS = {
    "gigpo": ["scpo", "scpo_chronological", "scpo_no_filter", "scpo_no_monotonicity", "scpo_shortest",
              "scpo_singleton_raw"],
    "gigpo_dynamic": ["scpo_dynamic"],
}  # fmt: skip
READ |= {
    (wrapper, world): READ[method, world]
    for method, wrappers in WRAPPERS.items()
    for wrapper in wrappers
    for world in ("alfworld", "webshop")
}
