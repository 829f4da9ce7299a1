//! What a check is, and what it found on all hosts.

use super::cell::Cell;
use super::probe::Probe;
use super::scene::Scene;
use crate::plan::words::Level;

/// What a check is about: a column of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Area {
    /// The machine.
    Host,
    /// Docker and what is left of earlier runs.
    Docker,
    /// The image and what is in it.
    Image,
    /// The GPUs.
    Gpu,
    /// Mounts, paths, outputs that must be equal.
    Files,
    /// Addresses, ports, cards.
    Network,
}

impl Area {
    /// All, in their order.
    pub const ALL: [Area; 6] = [Area::Host, Area::Docker, Area::Image, Area::Gpu, Area::Files, Area::Network];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Area::Host => "host",
            Area::Docker => "docker",
            Area::Image => "image",
            Area::Gpu => "gpu",
            Area::Files => "files",
            Area::Network => "network",
        }
    }
}

/// One check.
#[derive(Debug, Clone, Copy)]
pub struct Check {
    /// Its stable name, one of [`NAMES`](super::NAMES).
    pub name: &'static str,
    /// What it is about.
    pub area: Area,
    /// What it looks at and when it complains, for people.
    pub looks: &'static str,
    /// What the hosts must be asked for it.
    pub needs: &'static [Probe],
    /// The judgement: a cell for each host of the scene, in its order.
    pub judge: fn(&Scene<'_>) -> Vec<Cell>,
}

/// What one check found on all hosts that answered.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Which.
    pub check: Check,
    /// The host's index in the inventory, and its cell.
    pub cells: Vec<(usize, Cell)>,
}

/// Equal cells of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The indexes of the hosts in the inventory.
    pub hosts: Vec<usize>,
    /// What was found on each of them.
    pub cell: Cell,
}

impl Answer {
    /// The worst of its cells; without any it was not looked at.
    pub fn level(&self) -> Level {
        self.cells.iter().map(|(_, cell)| cell.level).max().unwrap_or(Level::Skipped)
    }

    /// Equal cells put together, the worst first.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for (host, cell) in &self.cells {
            match groups
                .iter_mut()
                .find(|g| (g.cell.level, &g.cell.what, &g.cell.hint, g.cell.agree) == (cell.level, &cell.what, &cell.hint, cell.agree))
            {
                Some(group) => group.hosts.push(*host),
                None => groups.push(Group { hosts: vec![*host], cell: cell.clone() }),
            }
        }
        groups.sort_by_key(|g| (std::cmp::Reverse(g.cell.level), g.hosts.first().copied()));
        groups
    }
}
