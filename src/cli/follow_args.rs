//! Arguments of `attach` and `logs`.

use clap::Args;

use super::common_args::CommonArgs;
use super::value_parsers::{DEFAULT_TAIL, parse_ranks, parse_tail, parse_tail_or_all};
use crate::text::rank_selection::RankSelection;

#[derive(Debug, Clone, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// How many of the last lines of each log to show first
    #[arg(long, value_name = "N", default_value_t = DEFAULT_TAIL, value_parser = parse_tail)]
    pub tail: usize,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    pub common: CommonArgs,
    /// Keep printing new lines
    #[arg(short = 'f', long)]
    pub follow: bool,
    /// A past run of this inventory as listed by `runs`; a unique prefix is enough
    #[arg(long, value_name = "ID", conflicts_with = "follow")]
    pub run: Option<String>,
    /// Only these ranks: `3`, `r3`, `0-3,7`, `host:gpu02` (repeatable)
    #[arg(long, value_name = "RANKS", value_parser = parse_ranks)]
    pub rank: Vec<RankSelection>,
    /// Only these hosts: names, `gpu[01-04]`, `gpu*`, `!gpu03` (repeatable)
    #[arg(long = "host", value_name = "PATTERN")]
    pub hosts: Vec<String>,
    /// Only the last N lines of each log, or `all` [default: all; 10 with -f]
    #[arg(long, value_name = "N", value_parser = parse_tail_or_all)]
    pub tail: Option<usize>,
}

impl LogsArgs {
    /// How many lines of each log to show first; `None`: all.
    pub(crate) fn tail_line_count(&self) -> Option<usize> {
        self.tail.or(self.follow.then_some(DEFAULT_TAIL)).filter(|lines| *lines != usize::MAX)
    }

    pub(crate) fn ranks(&self) -> RankSelection {
        RankSelection::merge(&self.rank)
    }
}
