"""The verb `run`, one task of an unchanged TensorFlow 1 script, and `launch run`, all of its tasks.

    launch run: ports --> the cluster --> each task: ps_train run script.py, with TF_CONFIG or the script's own flags,
                                                     and with other launchers' variables that it reads

The tasks are processes on this machine or on those of --hosts. A script whose hosts are written into it gets the
launcher's addresses when it creates its `Server`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence

from ps_train.config import fields, flag_help
from ps_train.errors import ConfigError, LaunchError, UserCodeError
from ps_train.launch import launcher, preparation, supervision
from ps_train.launch.command_lines import TaskList
from ps_train.launch.display import Display, on_stream
from ps_train.launch.machines import Place, ThisMachine, machines_of
from ps_train.launch.process import TaskCommand
from ps_train.launch.supervision import Restarts
from ps_train.parts.legacy import source
from ps_train.parts.legacy.flags import Script, ScriptConfig, ScriptLaunchConfig, before_script, split_script
from ps_train.plugins.params import split_params
from ps_train.runtime import installed
from ps_train.verbs.verb import Verb

_HELP = {"-h", "--help", "--helpshort", "--helpfull"}  # with which a script only prints its flags
_HASH_SEED = "PYTHONHASHSEED"
_CLUSTER_FLAGS = ("ps_hosts", "worker_hosts", "job_name", "task_index", "chief_hosts", "evaluator_hosts")
_ONLY_IF_THERE = ("chief_hosts", "evaluator_hosts")  # few clusters have such tasks: without one, the script's default
# What many scripts call them. Some are common words, so they count only in a script that has a flag for the job and one
# for the index, and makes a `Server` or has a flag for the addresses.
_OTHER_NAMES = {"ps_hosts": ("ps-hosts",), "worker_hosts": ("worker-hosts",), "job_name": ("job-name", "job"),
                "task_index": ("task-index", "task_id", "task-id", "task"), "chief_hosts": ("master_hosts",)}
# In which TonY, Shifu, XLearning and Clusterone tell a task the addresses and its job.
_ADDRESS_VARIABLES = {"CLUSTER_SPEC", "TF_CLUSTER_DEF", "PS_HOSTS", "WORKER_HOSTS"}
_JOB_VARIABLES = {"JOB_NAME", "TF_ROLE"}


def _run(argv: Sequence[str]) -> None:
    words, script = split_script(argv, "run", ScriptConfig)
    script_config = _config_of(words)
    _choose_keras(script_config, script)
    _import_tensorflow(script_config)
    from ps_train.parts.legacy import run  # noqa: PLC0415 (TensorFlow takes seconds; a wrong flag should not)

    run.run_script(script_config, script)


def _choose_keras(script_config: ScriptConfig, script: Script) -> None:
    """Makes `tf.keras` the package `keras` if a script of TensorFlow 2 uses both, unless the user has chosen."""
    path = source.find(script)
    if installed.KERAS_VARIABLE in os.environ or not source.needs_one_keras(script_config.tf_mode, path, script):
        return
    os.environ[installed.KERAS_VARIABLE] = "0"
    if source.uses_tf_keras(path, script):
        print(f"ps_train run: {path} imports the package keras, which is tf.keras, too; for Keras 2 as tf.keras, set "
              f"{installed.KERAS_VARIABLE}=1", file=sys.stderr)


def prepare_spawned(flags: Sequence[str]) -> None:
    """Prepares this process, which a script has started by `multiprocessing`, as `ps_train run` with these flags."""
    script_config = _config_of(flags)
    _import_tensorflow(script_config)
    from ps_train.parts.legacy import run  # noqa: PLC0415 (as above)

    run.prepare_spawned_child(script_config)


def _config_of(flags: Sequence[str]) -> ScriptConfig:
    values, _ = fields.parse_flags(flags, ScriptConfig, help_command="ps_train run --help")
    return ScriptConfig(**values)


def _import_tensorflow(script_config: ScriptConfig) -> None:
    installed.import_tensorflow(needs_gpu=True, tf_log=script_config.tf_log, needs_keras=True)


def _launch(argv: Sequence[str]) -> None:
    """Runs a script as a whole cluster until it ends."""
    words, script = split_script(argv, "launch run", ScriptLaunchConfig)
    values, given_names = fields.parse_flags(words, ScriptLaunchConfig, help_command="ps_train launch run --help")
    config = ScriptLaunchConfig(**values)
    text = source.text_of(source.find(script))
    text_with_flags = _text_with_flags(config, script, text)
    flags = _cluster_flags_of(config, text_with_flags)
    variables = _other_variables_in(text_with_flags) | ({"TF_CONFIG"} if not flags or "TF_CONFIG" in text else set())
    installed.check_tensorflow()
    _refuse_tf_config()
    log_dir = _make_log_dir(config)
    names = _task_names(config)
    tasks = TaskList(names, next(name for name in names if not name.startswith("ps:")), ("run",), {})
    task_flags = [f"--{name}={values[name]}" for name in fields.rules(ScriptConfig) if name in given_names]
    display = on_stream(sys.stdout, names, tasks.chief)
    grace_secs = config.stop_timeout_secs + launcher.KILL_SECS
    with supervision.noted_signals() as signals, machines_of(config, tasks, signals, grace_secs) as machines:
        places = machines.reserve()
        cluster = _cluster_of(names, places)
        commands = [_command(name, cluster, script, task_flags, flags=flags, variables=variables, machines=machines)
                    for name in names]
        means = "its flags" if flags else ", ".join(sorted(variables))
        display.write(_announcement(config, cluster, script, means, log_dir))
        with launcher.started(commands, [place.holder for place in places], log_dir, display) as processes:
            error = launcher.run_to_end(
                processes, display, signals, Restarts(config.max_restarts, display.write), grace_secs)
        display.close(signals)
        display.write(f"{launcher.exit_codes(processes)}\nLogs: {log_dir}")
        code = launcher.worst_code(processes)
        is_lonely = _warn_of_missing_workers(processes, config, display)
    if error:
        raise error
    if signals:
        raise preparation.stopped(signals[0])
    if is_lonely and not (code or signals or _HELP.intersection(script.arguments)):
        _refuse_lonely_training(config, script, text, flags)


def _warn_of_missing_workers(
    processes: supervision.ClusterProcesses, config: ScriptLaunchConfig, display: Display
) -> bool:
    """Names the workers that have not joined the ps, if others have; returns whether none has."""
    workers = [process for process in processes.workers if not process.name.startswith("evaluator:")]
    missing = [process.name for process in workers if not process.has_joined]
    if config.num_ps and 0 < len(missing) < len(workers):
        display.write(f"Warning: {' and '.join(missing)} did not join the ps: training was over, or it ran by itself")
    return len(missing) == len(workers)


def _text_with_flags(config: ScriptLaunchConfig, script: Script, text: str) -> str:
    """Returns the text in which to look for the script's cluster flags: with its imports, unless it needs none."""
    reads_tf_config = "TF_CONFIG" in text and not any(source.defines_flag(text, name) for name in _CLUSTER_FLAGS)
    if reads_tf_config and not config.hosts_flags:  # an import may have flags that this script does not parse
        return text
    return source.text_with_imports(source.find(script), script)


def _refuse_lonely_training(
    config: ScriptLaunchConfig, script: Script, text: str, flags: Mapping[str, str]
) -> None:
    """Raises LaunchError if no worker has joined the others, unless the cluster has only one task."""
    if config.num_ps + config.num_workers == 1:  # an evaluator reads checkpoints only
        return
    means = f"--{', --'.join(flags.values())}" if flags else "TF_CONFIG"
    lacks = ("session with a tf.train.Server" if source.is_tensorflow_1(config.tf_mode, text) else
             "tf.distribute strategy or server")
    raise LaunchError(
        "no_worker_joined",
        f"no worker of {script.name} has joined the {'ps' if config.num_ps else 'others'}, so each task ran by itself: "
        f"it got {means}, and created no {lacks} with these addresses; name the script's own flags with "
        "--hosts_flags=ps_hosts=NAME,..., write {job_name} and {ps_hosts} into its arguments, or run it as one process "
        "with `ps_train run`",
        UserCodeError.exit_code)


def _refuse_tf_config() -> None:
    if os.environ.get("TF_CONFIG", "").strip():
        raise ConfigError("tf_config_set", "TF_CONFIG is set, which places a single task; launch places all of them "
                          "itself: unset it")


def _make_log_dir(config: ScriptLaunchConfig) -> str:
    """Creates the folder of the tasks' logs, and returns its path."""
    try:
        if not config.log_dir:
            return tempfile.mkdtemp(prefix="ps_train-run-")
        os.makedirs(config.log_dir, exist_ok=True)
    except OSError as error:
        raise ConfigError("folder_not_writable", f"cannot make the folder {error.filename!r}: {error.strerror}; give "
                          "another one with --log_dir") from None
    return config.log_dir


def _task_names(config: ScriptLaunchConfig) -> list[str]:
    """Returns the tasks: the ps, then the chief, then the others."""
    names = [f"ps:{index}" for index in range(config.num_ps)]
    if config.chief_job == "worker":
        names += [f"worker:{index}" for index in range(config.num_workers)]
    else:
        names += [f"{config.chief_job}:0", *(f"worker:{index}" for index in range(config.num_workers - 1))]
    return [*names, *["evaluator:0"] * config.evaluator]


def _cluster_of(names: Sequence[str], places: Sequence[Place]) -> dict[str, list[str]]:
    """Returns job -> addresses."""
    cluster: dict[str, list[str]] = {}
    for name, place in zip(names, places):
        cluster.setdefault(name.partition(":")[0], []).append(f"{place.address}:{place.port}")
    return cluster


def _announcement(
    config: ScriptLaunchConfig, cluster: Mapping[str, Sequence[str]], script: Script, means: str, log_dir: str
) -> str:
    """Returns the line that names the tasks, their hosts, and how they learn of each other."""
    tasks = [f"{job}:{index}{f' on {address}' if config.hosts else ''}" for job, addresses in cluster.items()
             for index, address in enumerate(addresses)]
    return (f"Starting {', '.join(tasks)} of {script.name}; each learns its place by {means}. "
            f"Logs{', here' if config.hosts else ''}: {log_dir}")


def _cluster_flags_of(config: ScriptLaunchConfig, text: str) -> dict[str, str]:
    """Returns the cluster flags that the script defines: ps_train's name -> the script's."""
    named = split_params("--hosts_flags", config.hosts_flags)
    for name, script_name in named.items():
        if name not in _CLUSTER_FLAGS:
            raise ConfigError("flag_out_of_range", f"--hosts_flags: unknown flag {name!r}; allowed: "
                              f"{', '.join(_CLUSTER_FLAGS)}")
        if not source.defines_flag(text, script_name):
            raise ConfigError("script_without_flag", f"--hosts_flags: the script defines no flag {script_name!r}; "
                              "give the name of one that it has")
    flags = {name: named.get(name, name) for name in _CLUSTER_FLAGS}
    flags = {name: script_name for name, script_name in flags.items() if source.defines_flag(text, script_name)}
    others = {name: script_name for name, names in _OTHER_NAMES.items()
              for script_name in reversed(names)  # the first of them wins
              if name not in flags and source.defines_flag(text, script_name)}
    found = {**flags, **others}
    is_placed = {"job_name", "task_index"} <= found.keys() and ("Server(" in text or "worker_hosts" in found)
    return found if is_placed else flags


def _other_variables_in(text: str) -> set[str]:
    """Returns the variables of other launchers from which a script reads its place."""
    names = {name for name in _other_variables("worker", 0, {}) if re.search(rf"""['"]{name}['"]""", text)}
    return names if names & _ADDRESS_VARIABLES and names & _JOB_VARIABLES else set()


def _other_variables(job: str, index: int, cluster: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Returns name -> value of the variables of other launchers. These know ps and workers; worker 0 is the chief."""
    chief = [*cluster.get("chief", ()), *cluster.get("master", ())]
    hosts = {"ps": list(cluster.get("ps", ())), "worker": [*chief, *cluster.get("worker", ())]}
    if job == "worker":
        index += len(chief)
    elif job in ("chief", "master"):
        job = "worker"
    return {**dict.fromkeys(("CLUSTER_SPEC", "TF_CLUSTER_DEF"), json.dumps(hosts)),
            "PS_HOSTS": ",".join(hosts["ps"]), "WORKER_HOSTS": ",".join(hosts["worker"]),
            **dict.fromkeys(_JOB_VARIABLES, job), **dict.fromkeys(("TASK_INDEX", "TASK_ID", "TF_INDEX"), str(index))}


def _command(
    name: str, cluster: Mapping[str, Sequence[str]], script: Script, task_flags: Sequence[str], *,
    flags: Mapping[str, str], variables: Collection[str], machines: ThisMachine,
) -> TaskCommand:
    job, _, index = name.partition(":")
    hosts = {"ps": cluster.get("ps", ()), "worker": cluster.get("worker", ()),
             "chief": cluster.get("chief") or cluster.get("master", ()), "evaluator": cluster.get("evaluator", ())}
    values = {**{f"{host_job}_hosts": ",".join(addresses) for host_job, addresses in hosts.items()},
              "job_name": job, "task_index": index}
    words = list(script.words)
    for value_name, value in values.items():  # "{job_name}" in an argument, for a script that takes no flags
        words = [word.replace(f"{{{value_name}}}", value) for word in words]
    words += [f"--{flag}={values[value_name]}" for value_name, flag in flags.items()
              if values[value_name] or value_name not in _ONLY_IF_THERE]
    # The order of a set of words, which may be a vocabulary, must be the same in all tasks, and after a restart.
    given = {source.CLUSTER_VARIABLE: json.dumps(cluster), _HASH_SEED: os.environ.get(_HASH_SEED, "0")}
    places = {**_other_variables(job, int(index), cluster),
              "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": int(index)}})}
    given.update({variable: places[variable] for variable in sorted(variables)})
    line = machines.command(name, ["run", *task_flags, *words], given)
    return TaskCommand(name, line, {**os.environ, **given})


RUN = Verb(
    usage="""\
  ps_train run [flags] script.py [its flags]
           Run one task of an unchanged TensorFlow 1 script, or with -m of a
           module. TF_CONFIG or the script's flags say which task it is.""",
    run=_run, flags_help=lambda _: flag_help.help_text(ScriptConfig),
    own_arguments=lambda arguments: before_script(arguments, ScriptConfig))
LAUNCH_RUN = Verb(
    usage="""\
  ps_train launch run [--num_ps=1] [--num_workers=2] script.py [its flags]
           Run all tasks of an unchanged TensorFlow 1 script in the same way.""",
    run=_launch, flags_help=lambda _: flag_help.help_text(ScriptLaunchConfig),
    own_arguments=lambda arguments: before_script(arguments, ScriptLaunchConfig))
