//! What the inventory says of its hosts, validated.

use std::time::Duration;

/// The container engine of the hosts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContainerEngine {
    /// `container.host`, handed to docker as `DOCKER_HOST`.
    pub host: Option<String>,
}

/// One host and the route to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InventoryHost {
    /// The name in the inventory; also the alias that is looked up in ssh_config.
    pub name: String,
    /// Where ssh connects; `None`: what ssh_config says for the name.
    pub address: Option<String>,
    /// What ranks use to reach this host; `None`: found from its interfaces and routes.
    pub fabric_address: Option<String>,
    /// Which GPUs this run may use.
    pub gpus: GpuSelection,
    /// The way to it.
    pub ssh: HostSshSettings,
}

/// `hosts[].gpus`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum GpuSelection {
    /// All GPUs of the host.
    #[default]
    Any,
    /// So many must be there.
    Count(u32),
    /// These indexes may be used.
    List(Vec<u32>),
}

/// SSH settings of the inventory for one host; what is `None` comes from ssh_config, then from OpenSSH's defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSshSettings {
    /// User on the host.
    pub user: Option<String>,
    pub port: Option<u16>,
    /// Private key files of the laptop, `~` and relative paths not yet resolved.
    pub identity_files: Vec<String>,
    /// Used instead of `~/.ssh/config`.
    pub config_file: Option<String>,
    /// Used instead of ssh_config's files.
    pub known_hosts_file: Option<String>,
    /// Jump hosts, first hop first.
    pub jump_hosts: Option<Vec<String>>,
    /// The name of the variable that holds the password.
    pub password_variable: Option<String>,
    /// What to do with a host key that is not known.
    pub host_key_checking: Option<HostKeyChecking>,
    /// For TCP, key exchange and authentication together.
    pub connect_timeout: Option<Duration>,
    /// How often a silent connection is asked whether it lives.
    pub keepalive_interval: Option<Duration>,
    /// For how long a host of a run is tried again after an error that no retry mends; then the run fails.
    pub give_up_after: Option<Duration>,
    /// How docker is run.
    pub r#become: Become,
}

/// `ssh.host_keys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKeyChecking {
    /// An unknown key is refused.
    Strict,
    /// An unknown key is noted and accepted; a changed or revoked one is refused.
    AcceptNew,
}

/// `ssh.become`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Become {
    /// As the ssh user.
    #[default]
    None,
    /// Through `sudo -n`.
    Sudo,
}

/// What is known of a run when its templates are evaluated. `None`: not known yet; the value prints as `<from HOST: what>`.
#[derive(Debug, Clone, Default)]
pub struct RuntimeValues {
    /// `run.id`.
    pub run_id: String,
    /// `run.stamp`: `20261121-0915`-like, made once.
    pub run_stamp: String,
    /// GPUs given to each host, same order as [`Inventory::hosts`](super::Inventory::hosts).
    pub gpu_counts: Vec<Option<u32>>,
    /// Fabric address of each host, same order.
    pub fabric_addresses: Vec<Option<String>>,
    /// The port picked for `master_port: auto`.
    pub master_port: Option<u16>,
}

impl RuntimeValues {
    /// Whether values are placeholders for what only a running script knows.
    pub(super) fn is_symbolic(&self) -> bool {
        self.run_id.contains('\0')
    }
}
