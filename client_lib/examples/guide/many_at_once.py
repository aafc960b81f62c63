import asyncio

import inferd


async def ask(connection, question):
    answer = connection.run(messages=question, max_tokens=30)
    try:
        return await asyncio.wait_for(answer.text_async(), timeout=60)
    except TimeoutError:
        return "(no answer in time)"
    finally:
        answer.close()  # cancels it if it still runs


async def main(connection):
    questions = ["Name a river.", "Name a lake.", "Name a mountain."]
    for question, answer in zip(questions, await asyncio.gather(*(ask(connection, q) for q in questions))):
        print(question, answer)


with inferd.connect() as connection:
    asyncio.run(main(connection))
