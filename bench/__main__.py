"""All questions, one after the other: python -m bench"""

from bench import cold_start, cpu_vs_java, encode_vs_java, scan_memory

for question in (cold_start, scan_memory, cpu_vs_java, encode_vs_java):
    print(f"\n{(question.__doc__ or '').splitlines()[0]}", flush=True)
    question.main()
