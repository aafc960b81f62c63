import collections

import inferd

with inferd.connect() as connection:
    samples = connection.samples(8, messages="Name a colour. Answer with one word.", temperature=1.0, seed=1,
                                 max_tokens=4, priority="batch")
    votes = collections.Counter(sample.text().strip(" .").lower() for sample in samples)
    for word, count in votes.most_common():
        print(count, word)
    print("computed: %d tokens" % sum(sample.usage.computed_tokens for sample in samples))
