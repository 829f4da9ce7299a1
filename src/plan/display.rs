//! The plan as text: every command that would run, per phase and host, and what every rank is given.

use crate::plan::Plan;
use crate::plan::action::{Action, Execution, Observation, memlock};
use crate::plan::facts::HostFacts;
use crate::plan::host_context::HostContext;
use crate::plan::launcher::{HostLaunchSpec, RankEnv};
use crate::text::shell_quote::{join_quoted, quote};

/// The plan for people, with the commands of every step. `facts`: if known, steps that are already done are marked; `scripts`: every script
/// in full, with its preamble and the files that it writes.
pub(crate) fn format_plan(plan: &Plan, facts: Option<&[HostFacts]>, scripts: bool) -> String {
    let mut text = String::new();
    let mut engines: Vec<String> = plan.hosts.iter().map(HostContext::docker_command).collect();
    engines.dedup();
    if let (false, Some(context)) = (scripts, plan.hosts.first()) {
        let (engines, base, name) = (engines.join(" or "), &context.run_dir_root, &context.name);
        let home = if base.starts_with('~') { ", ~ the home directory, also in quotes," } else { "" };
        text.push_str(&format!("in the commands H is {base}/{name}/<host>{home} and D runs {engines}\n"));
    }
    for phase in plan.phases() {
        text.push_str(&format!("{}\n", phase.label()));
        for step in plan.steps.iter().filter(|s| s.phase == phase) {
            let host = plan.hosts.get(step.host).map_or("", |s| s.host.as_str());
            let seen = facts.and_then(|f| f.get(step.host)).map(|f| step.action.observe(f));
            let state = match seen {
                Some(Observation::Satisfied(note)) => format!("ok ({note})"),
                Some(Observation::Needed(why)) if !why.is_empty() => format!("will run: {why}"),
                Some(Observation::Impossible(troubles)) => {
                    format!("IMPOSSIBLE: {}", troubles.iter().map(|t| t.message.as_str()).collect::<Vec<_>>().join("; "))
                }
                Some(Observation::Needed(_)) | None => "will run".to_owned(),
            };
            text.push_str(&format!("  {host}: {} — {state}\n", step.action.title()));
            if let Action::WriteRunFiles(prepare) = &step.action {
                write_launch_spec(&mut text, &prepare.launch_spec);
            }
            write_commands(&mut text, &step.action, plan.hosts.get(step.host), scripts);
        }
    }
    text
}

/// What a step sends to its host, without what begins every script; of the run directory's files only their names.
fn write_commands(text: &mut String, action: &Action, context: Option<&HostContext>, whole: bool) {
    match (action.execution(), action) {
        (Execution::NoOp, _) => {}
        (Execution::Connect { address, port, .. }, _) => {
            text.push_str(&format!("      | (a connection to {address}:{port} through its own sshd)\n"))
        }
        (Execution::SendFiles { from, to }, _) => text.push_str(&format!("      | (files of {from}, to {to})\n")),
        (Execution::FetchLogs, _) => {
            let run = context.map_or("", |context| context.run_id.as_str());
            text.push_str(&format!("      | (the log stream of {run}, to its end)\n"));
        }
        (Execution::Script(_), Action::WriteRunFiles(prepare)) if !whole => {
            text.push_str(&format!("      files:    keeper current; in the run's directory {}\n", prepare.file_names().join(" ")));
        }
        (Execution::Script(_), Action::RunTask(run)) if !whole => {
            for line in run.task.manual_script("").lines().skip(1) {
                text.push_str(&format!("      | {line}\n"));
            }
        }
        (Execution::Script(command) | Execution::PullImage(command), _) => {
            let shown = command.masked_script();
            let begins = context.filter(|_| !whole).map(|host_context| (host_context.lock_check(), host_context.script_preamble()));
            let rest = begins.and_then(|(guard, preamble)| shown.strip_prefix(&guard).or_else(|| shown.strip_prefix(&preamble)));
            let rest = rest.map(|rest| rest.replace(include_str!("../../assets/lib.sh"), "# (the contents of lib)\n"));
            let rest =
                rest.map(|rest| rest.replace(memlock::START_WITH_MEMLOCK_SH, "# (requests as much locked memory as docker allows)\n"));
            for l in rest.as_ref().unwrap_or(&shown).lines() {
                text.push_str(&format!("      | {l}\n"));
            }
        }
    }
}

fn write_launch_spec(text: &mut String, launch_spec: &HostLaunchSpec) {
    let through = if launch_spec.use_entrypoint { " (through the image's ENTRYPOINT)" } else { "" };
    text.push_str(&format!("      launcher: {}{through}\n", join_quoted(&launch_spec.argv)));
    text.push_str(&format!("      worker:   {}\n", join_quoted(&launch_spec.worker_argv)));
    for (name, value) in &launch_spec.env {
        text.push_str(&format!("      env:      {name}={}{}\n", quote(value), explain_variable(name, launch_spec)));
    }
    for (name, value) in &launch_spec.env_defaults {
        text.push_str(&format!("      default:  {name}={} (unless the image sets it)\n", quote(value)));
    }
    for RankEnv { title, env } in &launch_spec.ranks {
        let pairs: Vec<String> = env.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
        text.push_str(&format!("      {title}: {}\n", pairs.join(" ")));
    }
}

/// What a name of two meanings means here.
fn explain_variable(name: &str, launch_spec: &HostLaunchSpec) -> &'static str {
    let hosts = launch_spec.env.get("WORLD_SIZE") == launch_spec.env.get("ORCH_NNODES") && launch_spec.env.contains_key("NPROC_PER_NODE");
    match name {
        "WORLD_SIZE" if hosts => "   # counts hosts; ORCH_WORLD_SIZE counts processes",
        "RANK" if hosts => "   # the node rank",
        "WORLD_SIZE" => "   # counts processes",
        _ => "",
    }
}

/// The plan for programs: one object a step.
pub(crate) fn plan_to_json(plan: &Plan) -> serde_json::Value {
    let steps: Vec<serde_json::Value> = plan
        .steps
        .iter()
        .map(|step| {
            let mut value = serde_json::json!({
                "id": step.id,
                "phase": step.phase,
                "host": plan.hosts.get(step.host).map(|s| s.host.as_str()),
                "title": step.action.title(),
            });
            if let Execution::Script(command) | Execution::PullImage(command) = step.action.execution() {
                value["script"] = command.masked_script().into();
                value["timeout_seconds"] = command.timeout.as_secs().into();
            }
            if let Action::WriteRunFiles(prepare) = &step.action {
                value["launcher"] = prepare.launch_spec.argv.clone().into();
                value["worker"] = prepare.launch_spec.worker_argv.clone().into();
                value["env"] = serde_json::json!(prepare.launch_spec.env);
                value["env_defaults"] = serde_json::json!(prepare.launch_spec.env_defaults);
                let rank = |rank: &RankEnv| serde_json::json!({ "title": rank.title, "env": rank.env });
                value["ranks"] = prepare.launch_spec.ranks.iter().map(rank).collect();
            }
            value
        })
        .collect();
    serde_json::json!({ "world_size": plan.world_size, "ranks": plan.ranks, "run": plan.run_record, "steps": steps })
}
