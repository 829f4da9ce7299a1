//! Values of the whole run that templates may name: its name, port, launcher and sizes.

use minijinja::Value;

use super::{DEFAULT_MASTER_PORT, Evaluator};
use crate::inventory::errors::InventoryErrors;
use crate::inventory::launcher::Launcher;
use crate::inventory::template::TemplateValue;
use crate::inventory::yaml_tree::{SourceLocation, YamlKind};

impl Evaluator<'_> {
    pub(super) fn inventory_name(&self) -> TemplateValue {
        self.evaluated_text(&["name"]).map_or(TemplateValue::Invalid, |text| TemplateValue::Known(Value::from(text)))
    }

    /// The text that a setting has, if it is one.
    pub(super) fn evaluated_text(&self, keys: &[&str]) -> Option<String> {
        self.evaluate(self.inputs.tree.get_path(keys)?, None).as_text().map(str::to_owned)
    }

    pub(super) fn master_port(&self) -> TemplateValue {
        let Some(node) = self.inputs.tree.get_path(&["launch", "master_port"]) else {
            return TemplateValue::Known(Value::from(DEFAULT_MASTER_PORT));
        };
        let node = self.evaluate(node, None);
        if node.as_text() == Some("auto") {
            return match self.inputs.runtime.master_port {
                Some(port) => TemplateValue::Known(Value::from(port)),
                None => TemplateValue::Unknown(self.host_placeholder(0, "free port")),
            };
        }
        match (&node.kind, InventoryErrors::default().read_port(&node)) {
            (_, Some(port)) => TemplateValue::Known(Value::from(port)),
            (YamlKind::Unknown(text), _) if !text.is_empty() => TemplateValue::Unknown(text.clone()),
            _ => TemplateValue::Invalid,
        }
    }

    /// What `launch.with` says, with its default rendezvous: a template of that may need the world size. Mistakes are reported where it is parsed.
    pub(in crate::inventory) fn launcher(&self) -> Launcher {
        let with = self.inputs.tree.get_path(&["launch", "with"]).map(|node| self.evaluate(node, None));
        Launcher::parse(with.as_ref(), None, &mut InventoryErrors::default())
    }

    pub(super) fn world_size(&self) -> TemplateValue {
        let nodes = self.inputs.hosts.len();
        if self.launcher() == Launcher::Script {
            return TemplateValue::Known(Value::from(nodes));
        }
        let size = match self.unequal_gpu_counts() {
            Some(all) => Ok(all.into_iter().map(u64::from).sum()),
            None => self.resolve_nproc().map(|nproc| u64::from(nproc) * nodes as u64),
        };
        size.map_or_else(|unknown| unknown, |size| TemplateValue::Known(Value::from(size)))
    }

    pub(super) fn nproc_value(&self, location: &SourceLocation) -> TemplateValue {
        match self.unequal_gpu_counts() {
            Some(all) => {
                let all = all.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                let hint = "use world_size, or $ORCH_GPUS_PER_NODE in a script; or set launch.nproc_per_node";
                self.report(location, format!("`nproc_per_node` is not the same on all hosts: {all}"), hint)
            }
            None => self.resolve_nproc().map_or_else(|unknown| unknown, |nproc| TemplateValue::Known(Value::from(nproc))),
        }
    }
}
