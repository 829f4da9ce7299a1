//! The plan on one screen: hosts, ranks, GPUs, the commands as a person would type them, and what differs from what runs.

mod docker_words;
mod fold;
mod inputs;
mod page;
mod sections;
pub(crate) mod teardown;

pub(crate) use self::inputs::PlanOverview;
use self::page::OverviewPage;
pub(crate) use self::sections::rank_ranges;
use crate::plan::Plan;
use crate::plan::action::Action;
use crate::text::translation::Lang;

/// Columns where there is no terminal.
pub(crate) const DEFAULT_COLUMNS: usize = 80;
/// A width that no command fills.
const ONE_LINE: usize = 1 << 16;
/// The narrowest and the widest overview.
const COLUMNS: std::ops::RangeInclusive<usize> = 60..=120;

/// The plan's first launcher and its first `docker run`, as a person would type them, each on one line; `None`: there is none.
pub(crate) fn first_commands(plan: &Plan, lang: Lang) -> [Option<String>; 2] {
    let one_line = |words: Vec<String>| {
        let mut page = OverviewPage::new(lang, ONE_LINE);
        page.command(&words, 1);
        page.into_text().trim().to_owned()
    };
    let launch = plan.steps.iter().find_map(|step| step.action.launch_spec()).map(|spec| spec.manual_launch.words().to_vec());
    let container = plan.steps.iter().find_map(|step| match &step.action {
        Action::StartContainer(container) => Some(docker_words::docker_words(container, container.spec.as_ref()?)),
        _ => None,
    });
    [launch, container].map(|words| words.map(one_line))
}

/// At most 40 lines of at most `columns` columns.
pub(crate) fn format_overview(overview: &PlanOverview<'_>, columns: usize) -> String {
    let mut page = OverviewPage::new(overview.lang, columns.clamp(*COLUMNS.start(), *COLUMNS.end()));
    let launches = overview.plan.run_record.as_ref().is_none_or(|record| !record.tasks_only);
    if launches {
        sections::push_summary(&mut page, overview);
    } else {
        sections::push_tasks_summary(&mut page, overview);
    }
    let mut is_shortened = sections::push_container(&mut page, overview);
    if launches {
        is_shortened |= sections::push_launch(&mut page, overview);
        sections::push_environment(&mut page, overview);
    }
    sections::push_phases(&mut page, overview);
    sections::push_effect(&mut page, overview);
    let lang = overview.lang;
    let scripts = if is_shortened { lang.tr("-v: commands and scripts in full") } else { lang.tr("-v: scripts") };
    let rank = match () {
        () if !launches || !overview.offers_rank_option || overview.job.launch.launcher.has_dynamic_ranks() => "",
        () if overview.plan.ranks.is_empty() => lang.tr("; --facts: the ranks of each host"),
        () => lang.tr("; --rank 0: the environment of rank 0"),
    };
    page.row(lang.tr("more"), &format!("{scripts}{rank}"), 2);
    page.into_text()
}
