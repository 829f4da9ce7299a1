//! The newest line of every rank, equal ones grouped: what the first screen shows where no log has come here yet.

use std::collections::{BTreeMap, HashMap};

use ratatui::text::{Line, Span};

use crate::report::style;
use crate::text::hostlist::short_ranks;
use crate::tui::model::Model;

use super::formatting;

/// The newest line of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LastLine {
    /// Its restart, and the bytes of its log that were known then.
    log_position: (u32, u64),
    line: String,
    /// The line with every digit replaced, so that ranks which differ in numbers alone are one group.
    group_key: String,
}

/// The newest line of each rank, read again only when its log has grown.
#[derive(Debug, Clone, Default)]
pub(super) struct LastLines(BTreeMap<u32, LastLine>);

impl LastLines {
    /// Reads the lines of ranks with new output.
    pub(super) fn update(&mut self, model: &Model) {
        self.0.retain(|rank, _| model.state.ranks.contains_key(rank));
        for rank in model.state.ranks.values() {
            let seen = (rank.restart, rank.recent_lines.next_offset);
            if self.0.get(&rank.rank).is_some_and(|last| last.log_position == seen) {
                continue;
            }
            let line = model.last_line(rank);
            let key = line.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
            self.0.insert(rank.rank, LastLine { log_position: seen, line, group_key: key });
        }
    }

    /// Ranks and line of each group, the largest group first; ranks whose lines differ only in digits are one.
    pub(super) fn groups(&self, most: usize) -> Vec<(String, String)> {
        let mut groups: HashMap<&str, (Vec<u32>, &str)> = HashMap::new();
        for (rank, last) in self.0.iter().filter(|(_, last)| !last.line.is_empty()) {
            groups.entry(&last.group_key).or_insert_with(|| (Vec::new(), &last.line)).0.push(*rank);
        }
        let mut groups: Vec<(Vec<u32>, &str)> = groups.into_values().collect();
        groups.sort_by_key(|(ranks, _)| (std::cmp::Reverse(ranks.len()), ranks.first().copied()));
        groups.truncate(most);
        groups.into_iter().map(|(ranks, line)| (short_ranks(&ranks), line.to_owned())).collect()
    }

    /// The groups as rows.
    pub(super) fn rows(&self, model: &Model, most: usize, width: usize) -> Vec<Line<'static>> {
        let room = (width / 4).clamp(8, 24);
        let row = |(ranks, line): (String, String)| {
            Line::from(vec![
                Span::raw(" "),
                Span::styled(formatting::pad(&ranks, room), model.theme.dim()),
                Span::raw(" "),
                Span::raw(style::truncate_text(&line, width.saturating_sub(room + 2))),
            ])
        };
        self.groups(most).into_iter().map(row).collect()
    }
}
