"""Picks the sentences that say most of a text: OFC's kind "text summary". Writes them as text, in their order.

Latent semantic analysis: sentences are vectors over the most frequent content words, and a sentence weighs what it
has of the strongest topics, the singular vectors (Steinberger and Jezek, ISIM 2004). Memory grows with the sentences
only, not with their square.
"""

import re
from collections import Counter

import boto3
import numpy as np

WORD = re.compile(r"[^\W\d_]{4,}")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
VOCABULARY_MAX = 500
TOPICS_MAX = 5
# A topic counts if its singular value is this share of the strongest: what one sentence says alone is none.
WEAKEST_TOPIC = 0.5

s3 = boto3.client("s3")


def weights(sentences: list[str]) -> np.ndarray:
    """One weight for each sentence."""
    words = [WORD.findall(sentence.lower()) for sentence in sentences]
    vocabulary = [word for word, _ in Counter(word for row in words for word in row).most_common(VOCABULARY_MAX)]
    if not vocabulary:
        return np.zeros(len(sentences))
    column = {word: index for index, word in enumerate(vocabulary)}
    terms = np.zeros((len(sentences), len(vocabulary)), dtype=np.float32)
    for row, found in enumerate(words):
        for word in found:
            if word in column:
                terms[row, column[word]] += 1
    # The topics from the small square matrix of words: its eigenvectors are the singular vectors wanted, and its
    # eigenvalues the squares of the singular values.
    strengths, topics = np.linalg.eigh(terms.T @ terms)
    strong = topics[:, strengths >= strengths[-1] * WEAKEST_TOPIC**2][:, -TOPICS_MAX:]
    return np.linalg.norm(terms @ strong, axis=1)


def handler(event, context):
    source, target = event["input"], event["output"]
    wanted = int(event.get("sentences", 10))
    if not 1 <= wanted <= 1000:
        raise ValueError(f"sentences must be between 1 and 1000, not {wanted}")

    body = s3.get_object(Bucket=source["bucket"], Key=source["key"])["Body"]
    text = body.read().decode("utf-8", errors="replace")
    sentences = [" ".join(sentence.split()) for sentence in SENTENCE_END.split(text) if WORD.search(sentence)]
    best = np.argsort(-weights(sentences), kind="stable")[:wanted]
    summary = "\n".join(sentences[index] for index in sorted(best))

    s3.put_object(
        Bucket=target["bucket"], Key=target["key"], Body=summary.encode(), ContentType="text/plain; charset=utf-8"
    )
    return {"sentences": len(sentences), "kept": len(best), "bytes": len(summary.encode())}
