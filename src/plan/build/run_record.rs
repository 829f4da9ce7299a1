//! The run's record, as each host stores it.

use super::{HostPlanner, LaunchInputs};
use crate::inventory::{Become, InventoryHost, Teardown};
use crate::plan::Plan;
use crate::plan::protocol::run_record::{RunRecord, RunRecordHost};

fn run_record_host(host: &InventoryHost, fabric: &str) -> RunRecordHost {
    RunRecordHost {
        name: host.name.clone(),
        address: host.address.clone(),
        user: host.ssh.user.clone(),
        port: host.ssh.port,
        jump: host.ssh.jump_hosts.clone(),
        sudo: host.ssh.r#become == Become::Sudo,
        fabric_address: fabric.to_owned(),
    }
}

impl HostPlanner<'_> {
    pub(super) fn run_record(&self, plan: &Plan) -> RunRecord {
        let LaunchInputs { inventory, job, identity: ids, .. } = self.inputs;
        let (container_text, launch_text) = self.inputs.config_texts.get(self.host_index).cloned().unwrap_or_default();
        RunRecord {
            run_id: ids.run_id.clone(),
            name: inventory.name.clone(),
            owner: ids.owner.clone(),
            started_at: ids.started_at.clone(),
            hosts: inventory.hosts.iter().zip(&self.layout.fabric_addresses).map(|(h, fabric)| run_record_host(h, fabric)).collect(),
            ranks: plan.ranks.clone(),
            world_size: plan.world_size,
            in_container: self.context.in_container,
            boundary_voided: self.job_host.container.as_ref().is_some_and(|c| !c.host_exposures(&self.context.run_dir_root).is_empty()),
            tasks_only: ids.tasks_only,
            tasks: self.host_tasks().into_iter().map(|task| (task.number, task.name)).collect(),
            file_tasks: self.file_tasks(),
            tasks_text: inventory.fingerprint_text(self.host_index).tasks,
            tolerates_rank_loss: job.is_elastic(),
            min_hosts: job.min_hosts(),
            max_log_bytes: job.max_log_bytes,
            stop_hung: job.on_failure.stop_on_hang,
            hang_after_ms: job.on_failure.hang_after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            ready_when: job.launch.ready_pattern.clone(),
            stop_grace_secs: job.launch.stop_grace.as_secs(),
            teardown: match job.teardown {
                Teardown::Always => "always",
                Teardown::OnSuccess => "on-success",
                Teardown::Never => "never",
            }
            .to_owned(),
            container_text,
            launch_text,
        }
    }
}
