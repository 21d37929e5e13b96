"""Which chip to use for a model and a workload: time, memory, cost and energy on each, with ranges, assumptions and sources.

The order: families.py finds the model, work.py records it and counts, estimate.py asks each chip, compare.py ranks as far as
ranges allow, page.py and report_data.py show. Nothing here runs a model but measure.py.
"""
