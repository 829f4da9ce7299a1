//! A dry run of tasks: what each would do on each host now, and what differs in them since they last ran.

use std::collections::BTreeMap;

use crate::lifecycle::session::Session;
use crate::model::remote_command::CommandOutput;
use crate::plan::Plan;
use crate::plan::facts::HostFacts;
use crate::plan::protocol::run_record::diff_config_texts;
use crate::plan::task_preview::{PreviewRow, TaskPreview, format_rows};

/// The tasks of a plan with their forecasts, one line each; empty where there are no tasks. `rows`: those of tasks that send files.
pub(crate) async fn preview_tasks(session: &Session, plan: &Plan, facts: &[HostFacts], mut rows: Vec<PreviewRow>) -> String {
    let preview = TaskPreview::new(plan, facts);
    let answers = session.engine.fan_out(preview.commands()).await.into_iter();
    let answers: BTreeMap<usize, CommandOutput> = answers.filter_map(|(host, answer)| Some((host, answer.ok()?))).collect();
    let forecasts: Vec<_> = (0..plan.hosts.len()).map(|host| preview.forecasts(host, answers.get(&host))).collect();
    rows.extend(preview.rows(&forecasts));
    let columns = session.local.console.columns().map_or(usize::MAX, usize::from);
    format_rows(rows, session.reporter.lang(), columns)
}

/// What is different in the tasks since the run on the hosts was prepared, masked, `max` lines at most.
pub(crate) fn changed_tasks(session: &Session, facts: &[HostFacts], max: usize) -> Vec<String> {
    let sanitizer = session.reporter.sanitizer();
    let mut found: Vec<String> = Vec::new();
    for (host, record) in facts.iter().enumerate().filter_map(|(host, facts)| facts.run_record().map(|record| (host, record))) {
        for line in diff_config_texts(&record.tasks_text, &session.inventory.fingerprint_text(host).tasks) {
            let line = sanitizer.sanitize_line(&line).to_string();
            if found.len() < max && !found.contains(&line) {
                found.push(line);
            }
        }
    }
    found
}
