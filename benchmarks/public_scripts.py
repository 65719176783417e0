"""Public TF1 jobs as they are: which of them run to the end, with every process exiting with 0.

    python -m benchmarks.public_scripts --corpus=DIR --how=run            all jobs under `ps_train run`
    python -m benchmarks.public_scripts --corpus=DIR --how=plain          as they are, to compare with
    python -m benchmarks.public_scripts --corpus=DIR --only=guide-agn     one of them
    python -m benchmarks.public_scripts --corpus=DIR --set=unseen         a half of the jobs that were drawn by lot
    python -m benchmarks.public_scripts --corpus=DIR --set=third          jobs that were collected later; also fourth...
    python -m benchmarks.public_scripts --corpus=DIR --document=benchmarks/public/README.md
    python -m benchmarks.public_scripts --corpus=DIR --clone              prints the commands that place the corpus
    python -m benchmarks.public_scripts --corpus=DIR --make_data=MNIST    makes DIR/data; MNIST has the four files

The corpus is not part of this project: DIR/OWNER/NAME is a clone of each repository at the commit of the catalogue.
Nothing is fetched here. Results are in DIR/results, the logs of the last run of a job in DIR/work/HOW/JOB.
Some scripts need pandas, scipy, scikit-learn, mlxtend, twisted, retrying, PyYAML 5, gym 0.25, tflearn, tensorboardX,
matplotlib or dacite: put them on PYTHONPATH. The notes of `sixth.json` and of the later sets say which packages their
jobs need; gym is 0.23 where they name no version. gym_moving_dot is github.com/mrahtz/gym-moving-dot at 875105e, which
has the names of the environments that its job asks for.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys

from benchmarks.public import catalogue, commands, report, running


def main() -> int:
    """Runs the tool; returns 1 if a job did not end well."""
    arguments = _parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that no task is left
    corpus = os.path.abspath(arguments.corpus)
    jobs = catalogue.load([name for name in arguments.only.split(",") if name], arguments.set)
    if arguments.clone:
        print("\n".join(catalogue.clone_commands(jobs, corpus)))
        return 0
    if arguments.document:
        report.write_comparison(arguments.document, os.path.join(corpus, "results"), jobs)
        return 0
    if arguments.make_data:
        for name in ("data", "sets.field", *(f"sets.{name}" for name in catalogue.LATER)):
            module = importlib.import_module(f"benchmarks.public.{name}")  # imports TensorFlow
            module.make(os.path.join(corpus, "data"), arguments.make_data)
        return 0
    results = []
    for _ in range(arguments.repeats):
        for job in jobs:
            work = os.path.join(corpus, "work", arguments.how, job.name)
            result = running.run(job, arguments.how, corpus, work, arguments.grace_secs)
            print(f"{'well' if result.is_well else 'FAIL'}  {job.name}  {result.secs:g} s", flush=True)
            results.append(result)
            report.write(os.path.join(corpus, "results"), _results_name(arguments),
                         catalogue.load(set_name=arguments.set), results)
    return 0 if all(result.is_well for result in results) else 1


def _results_name(arguments: argparse.Namespace) -> str:
    return arguments.how if arguments.set == "catalogue" else f"{arguments.how}-{arguments.set}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="folder of the repositories, the data and the results")
    parser.add_argument("--set", default="catalogue", choices=catalogue.SETS, help="which jobs")
    parser.add_argument("--only", default="", help="names or beginnings of names of jobs, separated by commas")
    parser.add_argument("--how", default="run", choices=commands.HOWS)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--grace_secs", type=float, default=60.0,
                        help="for ps and evaluators, once all workers have ended")
    parser.add_argument("--clone", action="store_true", help="print the commands that place the repositories, and end")
    parser.add_argument("--document", default="", help="write the table of the results into this document, and end")
    parser.add_argument("--make_data", default="", metavar="MNIST", help="make the data sets from this folder, and end")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
