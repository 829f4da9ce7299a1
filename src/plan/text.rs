//! The plan as text: every command that would run, per phase and host, and what every rank is given.

use std::fmt::Write as _;

use crate::plan::Plan;
use crate::plan::action::{Action, Do, Seen};
use crate::plan::facts::HostFacts;
use crate::plan::launcher::Start;
use crate::shell::join;

/// The plan for people. `facts`: where known, what is already in order is said; `scripts`: whole scripts instead of their titles.
pub fn plan(plan: &Plan, facts: Option<&[HostFacts]>, scripts: bool) -> String {
    let mut text = String::new();
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
            if scripts && let Do::Script(command) = step.action.command() {
                for l in command.shown().lines() {
                    line(&mut text, format_args!("      | {l}"));
                }
            }
        }
    }
    text
}

fn start(text: &mut String, start: &Start) {
    line(text, format_args!("      launcher: {}", join(&start.argv)));
    line(text, format_args!("      worker:   {}", join(&start.worker)));
    for (name, value) in &start.env {
        line(text, format_args!("      env:      {name}={}", crate::shell::quote(value)));
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
