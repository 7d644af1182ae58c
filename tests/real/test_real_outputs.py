"""The checks that compare outputs, on a real server: each provoked fault fails by its name.

What is healthy passes in test_real_launches.py, all checks in one run.

Every fault is a plugin that the server loads itself (`vllm.general_plugins`), or a flag.
"""

import pytest
from plugins import plugin
from real_runs import execute, found, numbers, only

pytestmark = pytest.mark.real

NGRAM = 'serve.speculative-config={"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}'
CACHED = "serve.enable-prefix-caching=true"


WRONG_BLOCKS = """
def register():
    from vllm.v1.core.block_pool import BlockPool

    right = BlockPool.get_cached_block

    def wrong(self, block_hash, kv_cache_group_ids):
        found = right(self, block_hash, kv_cache_group_ids)
        return found and [self.blocks[block.block_id % (self.num_gpu_blocks - 1) + 1] for block in found]

    BlockPool.get_cached_block = wrong
"""
NO_DRAFTS = """
def register():
    from vllm.v1.core.sched.scheduler import Scheduler

    Scheduler.update_draft_token_ids = lambda self, draft_token_ids: None
"""
NOISE = """
def register():
    import torch
    from vllm.v1.sample.sampler import Sampler

    plain = Sampler.forward

    def noisy(self, logits, *args, **kwargs):
        return plain(self, logits + torch.randn_like(logits), *args, **kwargs)

    Sampler.forward = noisy
"""
SAMPLES = """
def register():
    from vllm.v1.sample.sampler import Sampler

    Sampler.greedy_sample = staticmethod(lambda logits: logits.softmax(-1).multinomial(1).view(-1))
"""
ACCEPTS_ALL = """
def register():
    import torch
    from vllm.v1.sample import rejection_sampler

    right = rejection_sampler.rejection_sample

    def accepts_all(drafts, number, longest, ends, probabilities, logits, *args, **kwargs):
        likeliest = torch.zeros_like(logits).scatter_(1, drafts.long().unsqueeze(1), 1.0)
        return right(drafts, number, longest, ends, probabilities, likeliest, *args, **kwargs)

    rejection_sampler.rejection_sample = accepts_all
"""
"""Verification that takes every drafted token for right; log-probabilities are still the model's own."""
BELIEVES_ALL = """
def register():
    from vllm.v1.sample.rejection_sampler import RejectionSampler

    right = RejectionSampler.forward

    def believes_all(self, metadata, probabilities, logits, *args, **kwargs):
        logits[metadata.target_logits_indices, metadata.draft_token_ids.long()] = logits.max() + 9
        return right(self, metadata, probabilities, logits, *args, **kwargs)

    RejectionSampler.forward = believes_all
"""
"""The same, and the log-probabilities say so too: only another launch can tell."""


def test_wrong_blocks_of_the_prefix_cache(vllm_build, tmp_path):
    """Damaged: what the cache finds is the block beside the right one."""
    damage = plugin(tmp_path / "plugin", "wrong_blocks", WRONG_BLOCKS)
    done = execute(vllm_build, tmp_path / "out", CACHED, *only("prefix_cache"), damage)
    check = found(done, "prefix_cache")
    assert (done.verdict, done.signature.kind, check.outcome) == ("FAIL", "check_failed", "fail")
    assert "the cold and the cached answer to a prompt of" in check.message
    assert numbers(check)["hit_tokens"] > 0
    assert numbers(check)["divergences"] > 0, "how many depends on what is in the blocks beside"


@pytest.mark.slow
def test_no_prefix_cache(vllm_build, tmp_path):
    """Damaged: the cache is off."""
    done = execute(vllm_build, tmp_path, "serve.enable-prefix-caching=false", *only("prefix_cache"))
    check = found(done, "prefix_cache")
    assert (done.verdict, check.outcome) == ("FAIL", "fail")
    assert check.message == "no token came from the prefix cache, of 512 in whole blocks"


@pytest.mark.slow
def test_a_drafter_that_never_drafts(vllm_build, tmp_path):
    """Damaged: the scheduler forgets what the n-gram proposer proposed."""
    damage = plugin(tmp_path / "plugin", "no_drafts", NO_DRAFTS)
    done = execute(vllm_build, tmp_path / "out", NGRAM, *only("spec_decode"), damage)
    check = found(done, "spec_decode")
    assert (done.verdict, check.outcome) == ("FAIL", "fail")
    assert check.message.startswith("speculation was on but never drafted: 0 drafts")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "code", "said"),
    [
        ("noise", NOISE, "the first and the repeated answer to a prompt of 64 tokens part at token"),
        ("samples", SAMPLES, "is not greedy: token"),
    ],
)
def test_one_prompt_with_several_answers(vllm_build, tmp_path, module, code, said):
    """Damaged: noise on the logits, of which the likeliest is then taken; or a token sampled at temperature 0."""
    damage = plugin(tmp_path / "plugin", module, code)
    done = execute(vllm_build, tmp_path / "out", *only("determinism"), damage)
    check = found(done, "determinism")
    assert (done.verdict, check.outcome) == ("FAIL", "fail")
    assert said in check.message


@pytest.mark.slow
def test_a_verification_that_accepts_every_draft(vllm_build, tmp_path):
    """Damaged: every drafted token counts as the likeliest; no second launch is needed to see it."""
    damage = plugin(tmp_path / "plugin", "accepts_all", ACCEPTS_ALL)
    done = execute(vllm_build, tmp_path / "out", NGRAM, *only("spec_decode"), damage)
    check = found(done, "spec_decode")
    assert (done.verdict, check.outcome) == ("FAIL", "fail")
    assert "the speculative answer to a prompt of" in check.message
    assert numbers(check)["acceptance_length"] == 4


@pytest.mark.slow
def test_a_verification_that_only_another_launch_can_tell(vllm_build, tmp_path):
    """Damaged: every drafted token counts as the likeliest, also in the log-probabilities of the answers."""
    damage = plugin(tmp_path / "plugin", "believes_all", BELIEVES_ALL)
    against = only("spec_decode", '{"against": "no speculation"}')
    done = execute(vllm_build, tmp_path / "out", NGRAM, *against, damage)
    check = found(done, "spec_decode")
    assert (done.verdict, check.outcome) == ("FAIL", "fail")
    assert "the speculative and the reference answer to a prompt of" in check.message
    assert numbers(check)["wrong_answers"] == 0
    assert numbers(check)["acceptance_length"] == 4
