//! Which hosts the overview shows, and in which order.

use std::cmp::Reverse;

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::state::HostState;
use crate::tui::model::Model;
use crate::tui::theme::DisplayStatus;

use super::gpu_matrix::GpuFilter;
use super::host_status::{self, HostStatus};
use super::{figure_age, formatting};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum HostOrder {
    /// Panes as in the inventory; the table by severity, with equal hosts folded.
    #[default]
    Standard,
    ProblemsFirst,
    Inventory,
    LeastUsed,
    Hottest,
    LongestSilent,
}

impl HostOrder {
    fn next(self) -> HostOrder {
        match self {
            HostOrder::Standard => HostOrder::ProblemsFirst,
            HostOrder::ProblemsFirst => HostOrder::Inventory,
            HostOrder::Inventory => HostOrder::LeastUsed,
            HostOrder::LeastUsed => HostOrder::Hottest,
            HostOrder::Hottest => HostOrder::LongestSilent,
            HostOrder::LongestSilent => HostOrder::Standard,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            HostOrder::Standard => "standard order",
            HostOrder::ProblemsFirst => "problems first",
            HostOrder::Inventory => "order of the inventory",
            HostOrder::LeastUsed => "least used first",
            HostOrder::Hottest => "hottest first",
            HostOrder::LongestSilent => "longest silent first",
        }
    }
}

/// The filter and the order of the hosts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HostSelection {
    filter: GpuFilter,
    only_problems: bool,
    order: HostOrder,
}

impl HostSelection {
    /// Shows the hosts with a GPU that matches; an empty text shows all.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn set_filter(&mut self, text: &str) -> Result<(), String> {
        self.filter = GpuFilter::parse(text)?;
        Ok(())
    }

    pub(super) fn toggle_problems(&mut self) {
        self.only_problems = !self.only_problems;
    }

    pub(super) fn set_next_order(&mut self) -> HostOrder {
        self.order = self.order.next();
        self.order
    }

    /// Shows all hosts again; `false` if none was left out.
    pub(super) fn clear(&mut self) -> bool {
        let narrowed = self.is_narrowed();
        (self.filter, self.only_problems) = (GpuFilter::default(), false);
        narrowed
    }

    /// Whether hosts may be left out.
    pub(super) fn is_narrowed(&self) -> bool {
        !self.filter.is_empty() || self.only_problems
    }

    /// Whether the order is one of values, in which equal hosts are not folded.
    pub(super) fn is_ordered_by_value(&self) -> bool {
        !matches!(self.order, HostOrder::Standard | HostOrder::ProblemsFirst)
    }

    /// The hosts that are shown, in their order.
    pub(super) fn hosts(&self, model: &Model) -> Vec<u32> {
        let all = (0_u32..).zip(&model.state.hosts);
        let mut hosts: Vec<u32> = all.filter(|(at, host)| self.shows(model, *at, host)).map(|(at, _)| at).collect();
        match self.order {
            HostOrder::Standard | HostOrder::Inventory => {}
            HostOrder::ProblemsFirst => hosts.sort_by_key(|at| severity(model, *at)),
            HostOrder::LeastUsed => sort_by_value(&mut hosts, |at| totals(model, at)?.utilization),
            HostOrder::Hottest => sort_by_value(&mut hosts, |at| Some(-totals(model, at)?.hottest?)),
            HostOrder::LongestSilent => hosts.sort_by_key(|at| model.host_statuses.get(*at as usize).map(|host| host.last_output_at)),
        }
        hosts
    }

    fn shows(&self, model: &Model, at: u32, host: &HostState) -> bool {
        let has_problem = model.host_statuses.get(at as usize).is_some_and(HostStatus::needs_attention);
        (!self.only_problems || has_problem) && self.filter.matches_host(&host.name, &host.gpus)
    }

    /// What is left out and the order, in one line; `None` for all hosts in the standard order.
    pub(super) fn title_line(&self, model: &Model, width: usize) -> Option<Line<'static>> {
        if !self.is_narrowed() && self.order == HostOrder::Standard {
            return None;
        }
        let mut parts = Vec::new();
        if !self.filter.is_empty() {
            parts.push(format!("/{}", model.sanitize(self.filter.text())));
        }
        if self.only_problems {
            parts.push(model.lang.tr("only problems (!)").to_owned());
        }
        if self.order != HostOrder::Standard {
            parts.push(format!("{} (s)", model.lang.term(self.order.name())));
        }
        let shown = self.hosts(model).len().to_string();
        let count = model.lang.tr_fill("{} of {}", &[&shown, &model.count(model.state.hosts.len(), "host")]);
        let hint = if self.is_narrowed() { model.lang.tr("esc shows all ") } else { "" };
        let room = width.saturating_sub(count.width() + hint.width() + 5);
        let text = formatting::pad(&parts.join("  "), room);
        Some(Line::from(vec![
            Span::styled(format!(" {count}  "), model.theme.header()),
            Span::styled(text, model.theme.accent()),
            Span::styled(format!("  {hint}"), model.theme.dim()),
        ]))
    }
}

/// The worst status first, then GPUs that work little, then as in the inventory.
pub(super) fn severity(model: &Model, at: u32) -> (Reverse<DisplayStatus>, bool, u32) {
    let standing = model.host_statuses.get(at as usize);
    let is_low = standing.is_some_and(|host| host.low_gpus.is_some());
    (Reverse(standing.map(|host| host.status).unwrap_or_default()), !is_low, at)
}

/// The GPUs of a host together; `None` where the figures are not current.
fn totals(model: &Model, at: u32) -> Option<host_status::GpuTotals> {
    let host = model.state.hosts.get(at as usize)?;
    (!figure_age::has_old_figures(model, at)).then(|| host_status::sum_gpus(host.gpus.iter()))
}

/// Smallest first; hosts without a value last, equal ones as in the inventory.
fn sort_by_value(hosts: &mut [u32], value: impl Fn(u32) -> Option<f32>) {
    // In thousandths.
    hosts.sort_by_cached_key(|at| value(*at).map_or((true, 0), |value| (false, (value * 1000.0).round() as i64)));
}
