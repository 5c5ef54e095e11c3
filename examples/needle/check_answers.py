#!/usr/bin/env python3
"""Prints each answer of a batch beside what the document says; exits with 1 if one is wrong. Usage: check_answers.py RESULTS.jsonl ANSWERS.json"""
import json
import sys

answers = json.load(open(sys.argv[2]))
results = sorted(map(json.loads, open(sys.argv[1])), key=lambda r: r["custom_id"])
wrong = len(answers) - len(results)
for line in results:
    text = line["response"]["body"]["choices"][0]["text"].strip()
    want = answers[line["custom_id"]]
    wrong += want not in text
    print(f"  {line['custom_id']:<22} {text:<12} {'as written' if want in text else 'WRONG: the document says ' + want}")
sys.exit(1 if wrong else 0)
