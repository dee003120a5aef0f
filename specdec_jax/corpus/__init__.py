"""Parallel text and summaries from Debian's own packages, where no hub of data sets is needed.

    python -m specdec_jax.corpus --out data            # descriptions: 17 MB to fetch, a minute
    python -m specdec_jax.corpus --out data --wide     # catalogs and man pages too: 300 MB

Package descriptions and their German translations come with apt's indices; message catalogs,
help pages and man pages come out of binary packages. All are human translations.
"""
