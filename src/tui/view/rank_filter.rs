//! Which ranks the Ranks screen shows: by number, by host, or by the values of the host's GPUs.

use std::ops::RangeInclusive;

use crate::state::RankState;
use crate::text::rank_selection::parse_range;
use crate::tui::model::Model;

use super::gpu_matrix::GpuFilter;

/// A filter; an empty one shows all ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RanksFilter {
    text: String,
    /// One of them must contain the rank; empty: any number.
    numbers: Vec<RangeInclusive<u32>>,
    hosts: GpuFilter,
}

impl RanksFilter {
    /// Parses `0-7,12 r37 gpu0* util<5`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub(super) fn parse(text: &str) -> Result<RanksFilter, String> {
        let (mut numbers, mut others) = (Vec::new(), Vec::new());
        for word in text.split_whitespace() {
            let ranges: Option<Vec<RangeInclusive<u32>>> = word.split(',').map(parse_range).collect();
            match ranges {
                Some(ranges) => numbers.extend(ranges),
                None => others.push(word),
            }
        }
        Ok(RanksFilter { text: text.trim().to_owned(), numbers, hosts: GpuFilter::parse(&others.join(" "))? })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn shows(&self, model: &Model, rank: &RankState) -> bool {
        let has_number = self.numbers.is_empty() || self.numbers.iter().any(|range| range.contains(&rank.rank));
        let host = || model.state.hosts.get(rank.host as usize);
        has_number && (self.hosts.is_empty() || host().is_some_and(|host| self.hosts.matches_host(&host.name, &host.gpus)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::fixtures;

    #[test]
    fn ranks_match_by_number_host_and_load() {
        let scene = fixtures::training_hosts(4);
        let model = &scene.app.model;
        let shown = |text: &str| {
            let filter = RanksFilter::parse(text).expect("a filter");
            let shown = model.state.ranks.values().filter(|rank| filter.shows(model, rank));
            crate::text::hostlist::fold_numbers(&shown.map(|rank| rank.rank).collect::<Vec<_>>())
        };
        let cases = [
            ("", "0-31"),
            ("5", "5"),
            ("r5-r7 12,30", "5-7,12,30"),
            ("gpu02", "16-23"),
            ("gpu0[1-2] 0-9", "8-9"),
            ("util<5", ""),
            ("util>5 r31", "31"),
        ];
        assert_eq!(cases.map(|(text, _)| shown(text)), cases.map(|(_, wanted)| wanted));
        assert!(RanksFilter::parse("heat>1").expect_err("no metric").contains("unknown metric"));
    }
}
