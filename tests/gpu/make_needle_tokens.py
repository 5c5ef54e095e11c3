"""Makes needle_tokens.json: text, records and questions for the needle model (examples/needle) as token ids, so that a test can ask it where
there is no tokenizer. Needs the `tokenizers` package. Usage: make_needle_tokens.py > needle_tokens.json"""
import json
import pathlib

from tokenizers import Tokenizer

HAY = (
    " Supper was late. The night watch counted the barometer readings at the upper quarry. There were 690 sheets under the signal mast, and"
    " her brother repaired them in the first frost. This had happened once before. On the flood meadow, the surveyor carried away the weather"
    " report again. At the end of the shift, the cook argued about the ledger of the harbour. Shortly after noon, the doctor counted the map"
    " of the shallows. Nobody could explain why. Two pilots asked about three letters from the mainland on the landing stage. On a Sunday,"
    " the surveyor measured a crate of lamp oil. After the storm, the surveyor asked about the ferry timetable. Her brother sent for the spare"
    " keys by the north road. Near the salt works, the keeper wrote down the ferry timetable again."
)
RECORDS = [("maroon phoenix", "907483"), ("rapid lion", "378876"), ("amber falcon", "512094")]


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    tokenizer = Tokenizer.from_file(str(root / "examples/needle/model/tokenizer.json"))

    def ids(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    out = {"start": tokenizer.encode("").ids, "hay": ids(HAY), "records": []}
    for key, value in RECORDS:
        question = ids(f"\nQuestion: What is the access code of {key}?\nAnswer:")
        out["records"].append(
            {
                "record": ids(f" The access code of {key} is {value}."),
                "question": question,
                "answer": ids(f"\nQuestion: What is the access code of {key}?\nAnswer: {value}.")[len(question) :],
            }
        )
    print(json.dumps(out))


main()
