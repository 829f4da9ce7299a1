//! An event on one row: its time, what it concerns, and what happened.

use std::borrow::Cow;

use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

use crate::report::style;
use crate::text::hostlist::short_ranks;
use crate::tui::model::Model;
use crate::tui::timeline_item::TimelineItem;

use super::formatting;

/// The least and the most columns of what an event concerns: `gpu[67-99],gpu[100-127]` fits at 80 columns.
const MIN_OWNER_WIDTH: usize = 6;
const MAX_OWNER_WIDTH: usize = 30;

/// The columns of events that are shown together.
pub(super) struct EventColumns {
    width: usize,
    /// As wide as the widest name, so that the texts have the rest.
    owner: usize,
}

impl EventColumns {
    pub(super) fn fit<'a>(model: &Model, shown: impl Iterator<Item = &'a TimelineItem>, width: usize) -> EventColumns {
        let most = (width * 3 / 10).clamp(8, MAX_OWNER_WIDTH);
        let widest = shown.map(|item| owner_text(model, item, most).0.width()).max().unwrap_or(0);
        EventColumns { width, owner: widest.clamp(MIN_OWNER_WIDTH, most) }
    }

    pub(super) fn row(&self, model: &Model, item: &TimelineItem) -> Line<'static> {
        let (owner, is_counted) = owner_text(model, item, self.owner);
        let count = if item.affected_count() > 1 && !is_counted { format!(" ({})", item.affected_count()) } else { String::new() };
        let mut spans = vec![
            Span::styled(format!(" {} ", model.format_time(item.at)), model.theme.dim()),
            model.theme.symbol_span(item.status),
            Span::raw(format!(" {} ", formatting::pad(&owner, self.owner))),
        ];
        let rest = self.width.saturating_sub(formatting::spans_width(&spans));
        // A number that is cut would be another one.
        let text = style::truncate_text(&model.lang.message(&model.sanitize(&item.text)), rest.saturating_sub(count.len()));
        spans.push(Span::raw(style::truncate_text(&(text + &count), rest)));
        Line::from(spans)
    }
}

/// The hosts or ranks that an event concerns, and whether only their number is said, since their names need more than `room` columns.
fn owner_text<'a>(model: &Model, item: &'a TimelineItem, room: usize) -> (Cow<'a, str>, bool) {
    let is_final = item.hosts.iter().all(|host| !model.state.host_name(*host).is_empty());
    let owner = item.owner(is_final, |item| match (&item.ranks[..], &item.hosts[..]) {
        ([], []) => String::new(),
        ([], hosts) => style::format_hosts(&model.state, &model.sanitizer, hosts),
        ([rank], [host]) => format!("r{rank} {}", model.sanitize(model.state.host_name(*host))),
        (ranks, _) => short_ranks(ranks),
    });
    match (owner.width() > room && item.affected_count() > 1, item.ranks.len()) {
        (false, _) => (owner, false),
        (true, 0) => (Cow::Owned(model.count(item.hosts.len(), "host")), true),
        (true, ranks) => (Cow::Owned(model.count(ranks, "rank")), true),
    }
}
