//! The tasks of `prepare` in the script: what the login node did before the job, and the steps of the job that run in its containers.

use super::inputs::{RUN_VARIABLES, SLURM_TASK_VARIABLES, ScriptInputs, without_first_line};
use crate::inventory::{PrepareTask, TaskCommand};
use crate::plan::host_context::SAFE_READ_SH;
use crate::plan::task::HostTask;
use crate::text::shell_quote::quote;
use crate::text::shell_template::{self, variable};

/// Names of the run that a task gets beside those of its node.
const NAMES: [&str; 3] = ["ORCH_NAME", "ORCH_NNODES", "PYTHONUNBUFFERED"];

/// Comments at the head of the script.
pub(super) fn title_text(inputs: &ScriptInputs<'_>) -> String {
    let names: Vec<&str> = inputs.slurm.login_tasks().map(|task| task.name.as_str()).collect();
    if names.is_empty() {
        return String::new();
    }
    format!("# `orchestrate slurm submit` does these tasks on the login node before it:\n# {}.\n", names.join("; "))
}

/// The tasks as a setting: `number: name`.
pub(super) fn settings_text(inputs: &ScriptInputs<'_>) -> String {
    let lines: String =
        inputs.slurm.step_tasks().map(|task| format!("  {}\n", quote(&format!("{}: {}", task.number, task.name)))).collect();
    if lines.is_empty() { "tasks=()\n".to_owned() } else { format!("# Steps before the ranks, in their containers.\ntasks=(\n{lines})\n") }
}

/// The part of the script that runs them.
pub(super) fn main_text(inputs: &ScriptInputs<'_>) -> String {
    if has_steps(inputs) { without_first_line(include_str!("../../../assets/slurm/steps.sh")) } else { String::new() }
}

pub(super) fn has_steps(inputs: &ScriptInputs<'_>) -> bool {
    inputs.slurm.step_tasks().next().is_some()
}

/// The files of the tasks, by name.
pub(super) fn files(inputs: &ScriptInputs<'_>) -> Vec<(String, String)> {
    let mut files = registered_file(inputs);
    for task in inputs.slurm.step_tasks() {
        files.extend(task_files(inputs, task));
    }
    if has_steps(inputs) {
        files.push(("read".to_owned(), SAFE_READ_SH.to_owned()));
        files.push(("run-task".to_owned(), include_str!("../../../assets/task.sh").to_owned()));
        files.push(("enter".to_owned(), include_str!("../../../assets/slurm/enter.sh").to_owned()));
    }
    files
}

/// What tasks on the login node have registered: `slurm submit` knows it, `slurm render` does not.
fn registered_file(inputs: &ScriptInputs<'_>) -> Vec<(String, String)> {
    let mut text = String::new();
    for task in inputs.slurm.login_tasks() {
        let Some(name) = &task.register else { continue };
        text.push_str(&match inputs.registered.iter().find(|(known, _)| known == name) {
            Some((_, value)) => format!("export {name}={}\n", quote(value)),
            None => format!("# export {name}='…'   what the task `{}` prints: `slurm submit` fills it in\n", task.name),
        });
    }
    if text.is_empty() { Vec::new() } else { vec![("registered".to_owned(), text)] }
}

fn task_files(inputs: &ScriptInputs<'_>, task: &PrepareTask) -> Vec<(String, String)> {
    let takes_part = |node: &usize| task.hosts.get(*node).is_some_and(Option::is_some);
    let (first, last) = ((0..task.hosts.len()).find(takes_part), (0..task.hosts.len()).rev().find(takes_part));
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let Some(step) = HostTask::new(task, first, inputs.spec.env.clone()) else { return Vec::new() };
    let base = step.base_name();
    let mut files: Vec<(String, String)> = step.files().into_iter().filter(|(name, _)| *name != format!("{base}.env")).collect();
    files.push((format!("{base}.env"), env_text(inputs, &step.command)));
    let mut place = format!("first={first} last={last}\n");
    if let Some(name) = &task.register {
        place.push_str(&format!("register={name} shared={}\n", if task.shares_value { "@all" } else { "''" }));
    }
    files.push((format!("{base}.step"), place));
    files
}

/// The environment of a task; in each node's copy it follows the lines of the job and of the node.
fn env_text(inputs: &ScriptInputs<'_>, command: &TaskCommand) -> String {
    let mut text = format!("export {}\n", RUN_VARIABLES.join(" "));
    let names =
        inputs.spec.env.iter().filter(|(name, _)| NAMES.contains(&name.as_str())).map(|(name, value)| (name.clone(), value.clone()));
    let container = inputs.container_settings().map(|spec| spec.env.clone()).unwrap_or_default();
    let container = container.into_iter().filter(|(name, _)| !command.env.contains_key(name));
    let own = command.env.iter().map(|(name, value)| (name.clone(), value.clone()));
    for (name, value) in names.chain(container).chain(own).filter(|(name, value)| *value != variable(name)) {
        text.push_str(&format!("export {name}={}\n", shell_template::quote(&value)));
    }
    text.push_str(&format!("unset {SLURM_TASK_VARIABLES}\n"));
    text
}

/// What a node adds to its copy of the files, since an earlier step may have registered more.
pub(super) fn collect_text(inputs: &ScriptInputs<'_>) -> &'static str {
    if has_steps(inputs) {
        "\n# What tasks of prepare have registered: before the job, for all nodes, for\n# this one.\n\
         cat \"$dir/files/registered\" \"$dir/registered/@all\"/* \"$dir/registered/$host\"/* 2>/dev/null >\"$ORCH_RUN_DIR/registered\"\n"
    } else {
        ""
    }
}

/// The end of a step: the task, run as the ranks are.
pub(super) fn step_tail(prefix: &str) -> String {
    let end = "\nended \"$code\"\nif [ -n \"$register\" ]; then keep_value; fi\n";
    let step = without_first_line(include_str!("../../../assets/slurm/step.sh"));
    format!("{step}\nwith_secrets {prefix}/bin/sh \"$ORCH_RUN_DIR/enter\" \"$n\"\ncode=$?{end}")
}

/// A name that the containers of a start have for all its steps.
pub(super) fn pyxis_name_line() -> &'static str {
    "  # Tasks of prepare change it before the ranks run in it.\n  \"--container-name=orch-$name-$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}\"\n"
}
