//! A teardown on one screen: what would be stopped, fetched and removed, and where.

use super::page::OverviewPage;
use crate::model::exit::RunOutcome;
use crate::plan::Plan;
use crate::plan::existing_run::run_outcome;
use crate::plan::facts::HostFacts;
use crate::text::hostlist::{fold_equal_answers, fold_names};
use crate::text::translation::Lang;

/// The plan of `down` with what was found; a host without facts did not answer.
pub(crate) fn format_teardown(plan: &Plan, facts: &[Option<HostFacts>], lang: Lang, columns: usize) -> String {
    let mut page = OverviewPage::new(lang, columns);
    let known: Vec<&HostFacts> = facts.iter().flatten().collect();
    let mut runs: Vec<&str> = known.iter().filter_map(|facts| facts.current_run.as_deref()).collect();
    runs.dedup();
    let state = run_outcome(&known).map_or(lang.tr("not started"), |(outcome, _)| match outcome {
        RunOutcome::Running => lang.tr("running"),
        RunOutcome::Ok => lang.tr("ended, ok"),
        RunOutcome::Failed => lang.tr("failed"),
        RunOutcome::Stopped => lang.tr("stopped"),
    });
    let run = if runs.is_empty() { lang.tr("none, only leftovers").to_owned() } else { format!("{} ({state})", runs.join(", ")) };
    page.row(lang.tr("run"), &run, 2);
    for phase in plan.phases() {
        let steps = plan.steps.iter().filter(|step| step.phase == phase);
        let titles: Vec<(String, String)> =
            steps.filter_map(|step| Some((plan.hosts.get(step.host)?.host.clone(), step.action.title().to_owned()))).collect();
        let groups = fold_equal_answers(&titles).into_iter();
        let texts: Vec<String> = groups.map(|(hosts, title)| format!("{}{}{hosts}", lang.message(&title), lang.colon())).collect();
        page.row(phase.name(), &texts.join(lang.semicolon()), 3);
    }
    let silent: Vec<String> =
        plan.hosts.iter().zip(facts).filter(|(_, facts)| facts.is_none()).map(|(context, _)| context.host.clone()).collect();
    if !silent.is_empty() {
        page.row(lang.tr("unknown"), &lang.tr_fill("{} did not answer", &[&fold_names(&silent)]), 2);
    }
    page.row(lang.tr("more"), lang.tr("-v prints every script"), 1);
    page.into_text()
}
