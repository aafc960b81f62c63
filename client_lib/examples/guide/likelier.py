import inferd

QUESTION = "The largest planet of the solar system is"

with inferd.connect() as connection:
    scores = {}
    for word in (" Mars", " Jupiter", " Vienna"):
        scored = connection.score(QUESTION, word)
        scores[word] = sum(value for chunk in scored for value in chunk.logprobs)
    for word, score in sorted(scores.items(), key=lambda item: -item[1]):
        print("%8.2f%s" % (score, word))
