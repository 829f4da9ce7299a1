//! The plan on one screen: hosts, ranks, GPUs, the commands as a person would type them, and what differs from what runs.

mod docker_words;
mod fold;
mod inputs;
mod page;
mod sections;
pub(crate) mod teardown;

pub(crate) use self::inputs::PlanOverview;
use self::page::OverviewPage;

/// Columns where there is no terminal.
pub(crate) const DEFAULT_COLUMNS: usize = 80;
/// The narrowest and the widest overview.
const COLUMNS: std::ops::RangeInclusive<usize> = 60..=120;

/// At most 40 lines of at most `columns` columns.
pub(crate) fn format_overview(overview: &PlanOverview<'_>, columns: usize) -> String {
    let mut page = OverviewPage::new(columns.clamp(*COLUMNS.start(), *COLUMNS.end()));
    sections::push_summary(&mut page, overview);
    let container_is_shortened = sections::push_container(&mut page, overview);
    let launch_is_shortened = sections::push_launch(&mut page, overview);
    sections::push_environment(&mut page, overview);
    sections::push_phases(&mut page, overview);
    sections::push_effect(&mut page, overview);
    let whole = if container_is_shortened || launch_is_shortened { ", whole commands" } else { "" };
    page.row("more", &format!("-v: scripts{whole}; --rank 0: the environment of rank 0"), 2);
    page.into_text()
}
