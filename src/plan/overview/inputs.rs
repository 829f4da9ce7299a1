//! What an overview is made of.

use crate::inventory::{InventoryHost, Job};
use crate::plan::Plan;
use crate::plan::facts::HostFacts;
use crate::text::translation::Lang;

pub(crate) struct PlanOverview<'a> {
    pub plan: &'a Plan,
    pub job: &'a Job,
    pub hosts: &'a [InventoryHost],
    /// `None`: the hosts were not asked.
    pub facts: Option<&'a [HostFacts]>,
    /// What `up` would do with what is on the hosts, then the differences from a live run.
    pub effect: &'a [String],
    /// Of `plan`: its other options can be advised.
    pub offers_rank_option: bool,
    pub lang: Lang,
}
