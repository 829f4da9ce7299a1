//! What we answer while russh talks: the host key's verdict from memory, the reason of an end, and no to every channel we did not ask for.
//!
//! Uses `trust`. Runs inside russh's loop, so nothing here waits, but for a `KnownHostsCommand` that wants to see the key.

use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{HashAlg, PublicKey, PublicKeyOrCertificate};
use russh::{Channel, ChannelId, ChannelOpenFailure};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::remote::RemoteError;
use crate::remote::certificate::Certificate;
use crate::remote::presented_key::Offered;
use crate::remote::trust::{Answer, Trust};

/// How a reason begins that the host gave itself.
pub(super) const SAID: &str = "the host said: ";
/// The reason of an end after a refusal that names no way to go on.
pub(super) const NO_METHOD: &str = "the server takes nothing more";

/// What the loop leaves behind for those outside.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Why the connection ended.
    pub(super) why: OnceLock<String>,
    /// Tells that it is known.
    known: Notify,
    /// The key to note.
    pub(super) new_key: OnceLock<Offered>,
}

impl Left {
    /// Waits until it is known why the connection ended.
    pub(super) async fn reason(&self) -> String {
        loop {
            let known = self.known.notified();
            if let Some(why) = self.why.get() {
                return why.clone();
            }
            known.await;
        }
    }
}

/// Why a handshake failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// russh's own reason.
    Ssh(russh::Error),
    /// The host's key.
    Key(RemoteError),
}

impl From<russh::Error> for Trouble {
    fn from(error: russh::Error) -> Self {
        Trouble::Ssh(error)
    }
}

/// Our side of one connection.
pub(super) struct Client {
    trust: Arc<Trust>,
    left: Arc<Left>,
    refusals: mpsc::Sender<String>,
    /// What the host has shown and we have accepted.
    accepted: Option<Offered>,
    /// Cancels `dead` when russh's loop is over, however it ended.
    _dead: DropGuard,
}

impl Client {
    pub(super) fn new(trust: Arc<Trust>, left: Arc<Left>, refusals: mpsc::Sender<String>, dead: CancellationToken) -> Self {
        Client { trust, left, refusals, accepted: None, _dead: dead.drop_guard() }
    }

    /// What is known of the host, with what `KnownHostsCommand` says about this very key.
    async fn known(&self, offered: &Offered) -> Result<Arc<Trust>, Trouble> {
        let Some(command) = self.trust.policy.command.as_ref().filter(|c| c.wants_key()) else { return Ok(self.trust.clone()) };
        let printed = command.ask(Some(offered)).await.map_err(Trouble::Key)?;
        let mut trust = Trust::clone(&self.trust);
        trust.hear(&printed);
        Ok(Arc::new(trust))
    }
}

/// Reads what the host shows; russh has checked that it owns the key.
fn offered(shown: &PublicKeyOrCertificate) -> Result<Offered, Trouble> {
    let blob = |key: &PublicKey| key.to_bytes().map_err(|e| Trouble::Ssh(e.into()));
    let plain = shown.public_key();
    let certificate = match shown.certificate() {
        None => None,
        Some(certificate) => {
            let authority = PublicKey::from(certificate.signature_key().clone());
            let own = certificate.signature_key().fingerprint(HashAlg::Sha256);
            // At this time it is valid, so what can be wrong is its signature.
            certificate.validate_at(certificate.valid_after(), [&own]).map_err(|e| Trouble::Ssh(e.into()))?;
            Some(Certificate {
                authority: blob(&authority)?,
                signed_with: certificate.signature().algorithm().to_string(),
                serial: certificate.serial(),
                id: certificate.key_id().to_owned(),
                names: certificate.valid_principals().to_vec(),
                after: certificate.valid_after(),
                before: certificate.valid_before(),
                host: certificate.cert_type() == CertType::Host,
                critical: certificate.critical_options().keys().cloned().collect(),
            })
        }
    };
    Ok(Offered { kind: plain.algorithm().to_string(), key: blob(&plain)?, certificate })
}

#[expect(clippy::disallowed_methods, reason = "a certificate is valid for a span of real time")]
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// A host's words on one line, bounded.
fn shown(said: &str) -> String {
    let line: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    line.trim().to_owned()
}

/// An end in words for people.
pub(super) fn words(error: &russh::Error) -> String {
    match error {
        russh::Error::KeepaliveTimeout => "no answer to our keepalives".to_owned(),
        russh::Error::InactivityTimeout => "silence, and nothing could be sent".to_owned(),
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::SendError => "closed by the other end".to_owned(),
        russh::Error::NoAuthMethod => NO_METHOD.to_owned(),
        russh::Error::IO(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => "closed by the other end".to_owned(),
        russh::Error::IO(e) => super::transport::words(e),
        other => other.to_string(),
    }
}

impl Handler for Client {
    type Error = Trouble;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Trouble> {
        let offered = offered(shown)?;
        // At every new key exchange the host proves itself again.
        if self.accepted.as_ref() == Some(&offered) {
            return Ok(true);
        }
        match self.known(&offered).await?.answer(&offered, now()) {
            Answer::Known => {}
            Answer::Learn => {
                self.left.new_key.get_or_init(|| offered.clone());
            }
            Answer::Refuse(error) => return Err(Trouble::Key(error)),
        }
        self.accepted = Some(offered);
        Ok(true)
    }

    async fn disconnected(&mut self, reason: DisconnectReason<Trouble>) -> Result<(), Trouble> {
        let why = match reason {
            DisconnectReason::ReceivedDisconnect(info) => format!("{SAID}{}", shown(&info.message)),
            DisconnectReason::Error(Trouble::Ssh(error)) => words(&error),
            DisconnectReason::Error(Trouble::Key(error)) => error.to_string(),
        };
        self.left.why.get_or_init(|| why);
        self.left.known.notify_waiters();
        Ok(())
    }

    async fn channel_open_failure(
        &mut self,
        _: ChannelId,
        _: ChannelOpenFailure,
        description: &str,
        _: &str,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        // A full queue means that nobody asks for reasons.
        self.refusals.try_send(description.to_owned()).or(Ok(()))
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(&mut self, _: Channel<Msg>, _: ChannelOpenHandle, _: &mut Session) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_session(&mut self, _: Channel<Msg>, _: ChannelOpenHandle, _: &mut Session) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Trouble> {
        Ok(())
    }
}
