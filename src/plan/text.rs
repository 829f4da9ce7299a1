//! The plan as text: every command that would run, per phase and host, and what every rank is given.

use std::fmt::Write as _;

use crate::plan::Plan;
use crate::plan::action::{Action, Do, Seen, memlock};
use crate::plan::facts::HostFacts;
use crate::plan::launcher::{RankStart, Start};
use crate::plan::site::Site;
use crate::shell::{join, quote};

/// The plan for people, with the commands of every step. `facts`: where known, what is already in order is said; `scripts`: every script
/// whole, with what begins each of them and with the files that it writes.
pub fn plan(plan: &Plan, facts: Option<&[HostFacts]>, scripts: bool) -> String {
    let mut text = String::new();
    let mut engines: Vec<String> = plan.sites.iter().map(Site::docker).collect();
    engines.dedup();
    if let (false, Some(site)) = (scripts, plan.sites.first()) {
        let (engines, base, name) = (engines.join(" or "), &site.base, &site.name);
        line(&mut text, format_args!("in the commands H is {base}/{name}/<host>, and D runs {engines}"));
    }
    for phase in plan.phases() {
        line(&mut text, format_args!("{}", phase.name()));
        for step in plan.steps.iter().filter(|s| s.phase == phase) {
            let host = plan.sites.get(step.host).map_or("", |s| s.host.as_str());
            let seen = facts.and_then(|f| f.get(step.host)).map(|f| step.action.observe(f));
            let state = match seen {
                Some(Seen::Satisfied(note)) => format!("ok ({note})"),
                Some(Seen::Needed(why)) if !why.is_empty() => format!("will run: {why}"),
                Some(Seen::Impossible(troubles)) => {
                    format!("IMPOSSIBLE: {}", troubles.iter().map(|t| t.what.as_str()).collect::<Vec<_>>().join("; "))
                }
                Some(Seen::Needed(_)) | None => "will run".to_owned(),
            };
            line(&mut text, format_args!("  {host}: {} — {state}", step.action.title()));
            if let Action::Prepare(prepare) = &step.action {
                start(&mut text, &prepare.start);
            }
            commands(&mut text, &step.action, plan.sites.get(step.host), scripts);
        }
    }
    text
}

/// What a step sends to its host, without what begins every script; of the run directory's files only their names.
fn commands(text: &mut String, action: &Action, site: Option<&Site>, whole: bool) {
    match (action.command(), action) {
        (Do::Nothing, _) => {}
        (Do::Reach { address, port, .. }, _) => line(text, format_args!("      | (a connection to {address}:{port} through its own sshd)")),
        (Do::Fetch { run }, _) => line(text, format_args!("      | (the log stream of {run}, to its end)")),
        (Do::Script(_), Action::Prepare(prepare)) if !whole => {
            line(text, format_args!("      files:    keeper current; in the run's directory {}", prepare.files().join(" ")));
        }
        (Do::Script(command), _) => {
            let shown = command.shown();
            let begins = site.filter(|_| !whole).map(|site| (site.guard(), site.preamble()));
            let rest = begins.and_then(|(guard, preamble)| shown.strip_prefix(&guard).or_else(|| shown.strip_prefix(&preamble)));
            let rest = rest.map(|rest| rest.replace(include_str!("../../assets/lib.sh"), "# (what the file lib says)\n"));
            let rest = rest.map(|rest| rest.replace(memlock::ATTEMPT, "# (asks for as much locked memory as docker gives)\n"));
            for l in rest.as_ref().unwrap_or(&shown).lines() {
                line(text, format_args!("      | {l}"));
            }
        }
    }
}

fn start(text: &mut String, start: &Start) {
    let through = if start.entrypoint { " (through the image's ENTRYPOINT)" } else { "" };
    line(text, format_args!("      launcher: {}{through}", join(&start.argv)));
    line(text, format_args!("      worker:   {}", join(&start.worker)));
    for (name, value) in &start.env {
        line(text, format_args!("      env:      {name}={}{}", quote(value), meaning(name, start)));
    }
    for (name, value) in &start.defaults {
        line(text, format_args!("      default:  {name}={} (unless the image sets it)", quote(value)));
    }
    for RankStart { title, env } in &start.ranks {
        let pairs: Vec<String> = env.iter().map(|(name, value)| format!("{name}={}", quote(value))).collect();
        line(text, format_args!("      {title}: {}", pairs.join(" ")));
    }
}

/// What a name of two meanings means here.
fn meaning(name: &str, start: &Start) -> &'static str {
    let hosts = start.env.get("WORLD_SIZE") == start.env.get("ORCH_NNODES") && start.env.contains_key("NPROC_PER_NODE");
    match name {
        "WORLD_SIZE" if hosts => "   # counts hosts; ORCH_WORLD_SIZE counts processes",
        "RANK" if hosts => "   # the node rank",
        "WORLD_SIZE" => "   # counts processes",
        _ => "",
    }
}

/// The plan for programs: one object a step.
pub fn json(plan: &Plan) -> serde_json::Value {
    let steps: Vec<serde_json::Value> = plan
        .steps
        .iter()
        .map(|step| {
            let mut value = serde_json::json!({
                "id": step.id,
                "phase": step.phase,
                "host": plan.sites.get(step.host).map(|s| s.host.as_str()),
                "title": step.action.title(),
            });
            if let Do::Script(command) = step.action.command() {
                value["script"] = command.shown().into();
                value["timeout_seconds"] = command.timeout.as_secs().into();
            }
            if let Action::Prepare(prepare) = &step.action {
                value["launcher"] = prepare.start.argv.clone().into();
                value["worker"] = prepare.start.worker.clone().into();
                value["env"] = serde_json::json!(prepare.start.env);
                value["env_defaults"] = serde_json::json!(prepare.start.defaults);
                let rank = |rank: &RankStart| serde_json::json!({ "title": rank.title, "env": rank.env });
                value["ranks"] = prepare.start.ranks.iter().map(rank).collect();
            }
            value
        })
        .collect();
    serde_json::json!({ "world_size": plan.world_size, "ranks": plan.ranks, "run": plan.run, "steps": steps })
}

fn line(text: &mut String, args: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    if text.write_fmt(args).is_ok() {
        text.push('\n');
    }
}
