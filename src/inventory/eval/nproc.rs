//! How many processes run on a host: as configured, or one per GPU.

use super::{Evaluator, NPROC_LIMIT, TemplateValue};
use crate::inventory::GpuSelection;
use crate::inventory::launcher::Launcher;
use crate::inventory::yaml_tree::YamlKind;

impl Evaluator<'_> {
    /// Worker processes a host, where they are known.
    pub(in crate::inventory) fn nproc_per_node(&self) -> Option<u32> {
        let location = self.inputs.tree.get_path(&["launch", "nproc_per_node"]).map_or(&self.inputs.tree.location, |node| &node.location);
        if self.unequal_gpu_counts().is_some() {
            return None;
        }
        match self.memoize("nproc_per_node", location, |scope| scope.nproc_value(location)) {
            TemplateValue::Known(value) => u32::try_from(value).ok(),
            TemplateValue::Unknown(_) | TemplateValue::Invalid => None,
        }
    }

    /// Worker processes of one host, where they are known.
    pub(in crate::inventory) fn nproc_on_host(&self, host: usize) -> Option<u32> {
        match self.unequal_gpu_counts() {
            Some(all) => all.get(host).copied(),
            None => self.nproc_per_node(),
        }
    }

    /// The GPUs of each host, if no number is given, they differ, and the launcher accepts that.
    pub(super) fn unequal_gpu_counts(&self) -> Option<Vec<u32>> {
        if self.inputs.nproc_override.is_some()
            || self.inputs.tree.get_path(&["launch", "nproc_per_node"]).is_some()
            || !self.supports_unequal_nproc()
        {
            return None;
        }
        let all: Vec<u32> =
            (0..self.inputs.hosts.len()).map(|host| self.gpu_count(host).filter(|gpus| *gpus > 0)).collect::<Option<_>>()?;
        all.iter().any(|gpus| Some(gpus) != all.first()).then_some(all)
    }

    /// Whether the launcher gives each host its own number. torchrun's hosts are documented to be alike, and accelerate divides the total
    /// by the hosts (accelerate/utils/launch.py); a hostfile has a number a line.
    pub(super) fn supports_unequal_nproc(&self) -> bool {
        match self.launcher() {
            Launcher::Processes | Launcher::Script => true,
            Launcher::Deepspeed(_) => self.evaluated_text(&["launch", "rendezvous"]).as_deref() == Some("hostfile"),
            Launcher::Torchrun(_) | Launcher::Accelerate => false,
        }
    }

    /// As many processes as every host has, or why that is not known; [`Evaluator::unequal_gpu_counts`] comes first.
    pub(super) fn resolve_nproc(&self) -> Result<u32, TemplateValue> {
        if let Some(trial) = self.inputs.nproc_override {
            return Ok(trial);
        }
        let Some(node) = self.inputs.tree.get_path(&["launch", "nproc_per_node"]) else { return self.default_nproc() };
        let node = self.evaluate(node, None);
        let number = self.errors.borrow_mut().read_number(&node, 1, NPROC_LIMIT);
        match (&node.kind, number) {
            (_, Some(number)) => Ok(number),
            (YamlKind::Unknown(text), None) if !text.is_empty() => Err(TemplateValue::Unknown(text.clone())),
            _ => Err(TemplateValue::Invalid),
        }
    }

    /// The GPUs given to each host, which must be as many on all where the launcher knows one number only.
    fn default_nproc(&self) -> Result<u32, TemplateValue> {
        let location = self.inputs.tree.get("launch").unwrap_or(self.inputs.tree).location.child("nproc_per_node");
        let mut all = Vec::new();
        for host in 0..self.inputs.hosts.len() {
            match self.gpu_count(host) {
                Some(gpus) => all.push(gpus),
                None => return Err(TemplateValue::Unknown(self.host_placeholder(host, "GPU count"))),
            }
        }
        let least = all.iter().copied().min().unwrap_or(0);
        if let Some(other) = all.iter().position(|gpus| *gpus != all.first().copied().unwrap_or(0)) {
            let (first, name) = (self.host_name(0), self.host_name(other));
            let message = format!(
                "{first} gives {} GPUs and {name} gives {}, and `with: {}` needs one number for all hosts: there is no default",
                all.first().unwrap_or(&0),
                all.get(other).unwrap_or(&0),
                self.launcher().as_str()
            );
            let hint = format!("set launch.nproc_per_node, at most {least}, or make the hosts' gpus equal");
            return Err(self.report(&location, message, hint));
        }
        if least == 0 {
            let hint = "set launch.nproc_per_node, for example to 1";
            return Err(self.report(&location, "the hosts have no GPUs: there is no default", hint));
        }
        Ok(least)
    }

    /// GPUs given to a host: by its container, by its `gpus`, or by what it has.
    pub(in crate::inventory) fn gpu_count(&self, host: usize) -> Option<u32> {
        let own = self.inputs.host_nodes.get(host).and_then(|member| member.get_path(&["container", "gpus"]));
        let node = own.or_else(|| self.inputs.tree.get_path(&["container", "gpus"])).map(|node| self.evaluate(node, Some(host)));
        match node.as_ref().map(|node| &node.kind) {
            Some(YamlKind::List(items)) => return u32::try_from(items.len()).ok(),
            Some(YamlKind::Scalar { text, .. }) if text == "none" => return Some(0),
            Some(YamlKind::Scalar { text, plain: true }) if text != "all" => {
                return crate::inventory::yaml_parser::parse_plain_scalar(text);
            }
            _ => {}
        }
        match self.inputs.hosts.get(host).map(|host| &host.gpus) {
            Some(GpuSelection::Count(count)) => Some(*count),
            Some(GpuSelection::List(list)) => u32::try_from(list.len()).ok(),
            Some(GpuSelection::Any) | None => self.inputs.runtime.gpu_counts.get(host).copied().flatten(),
        }
    }
}
