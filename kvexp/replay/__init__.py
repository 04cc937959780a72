"""The offline-replay harness: one prefill per example, every eviction arm answers from it.

Order of reading: model (what is loaded), prompt (token ids and spans), prefill (keys, values, scores),
cache (what an arm keeps), signals, decode, harness (all of it for one example).
"""
