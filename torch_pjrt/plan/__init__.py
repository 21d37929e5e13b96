"""Which chip to use for a model and a workload: time, memory, cost and energy on each, with ranges, assumptions and sources.

The order: families.py finds the model, work.py records it and counts (graph.py, fusion.py, policies.py), estimate.py asks each
chip for its fastest layout (layout.py, memory.py, roofline.py, collectives.py, attention.py), compiled.py lets compilers and
calibration.py measured runs correct it, compare.py ranks as far as ranges allow, migration.py says what moving costs and saves,
page.py and report_data.py show. Nothing here runs a model but measure.py.
"""
