"""Used by fanout.py: one command on many hosts with asyncssh.   python asyncssh_true.py SSH_CONFIG FORKS < names"""

import asyncio
import sys

import asyncssh


async def main(config, forks, names):
    gate = asyncio.Semaphore(forks)

    async def one(name):
        async with gate:
            async with asyncssh.connect(name, config=[config]) as connection:
                return (await connection.run("true")).exit_status

    codes = await asyncio.gather(*(one(n) for n in names), return_exceptions=True)
    bad = [c for c in codes if c != 0]
    if bad:
        print(f"{len(bad)} failed, the first: {bad[0]!r}", file=sys.stderr)
    return 1 if bad else 0


sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]), open(sys.argv[3]).read().split())))
