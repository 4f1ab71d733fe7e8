//! The directory in which a user's runs keep their files: it is the user's alone and does not survive a
//! reboot.

use nix::fcntl::{OFlag, open, openat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;
use nix::unistd::geteuid;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Opens a file that all runs of this user share; without a runtime directory, a private one.
pub fn shared(name: &str) -> io::Result<File> {
    match Directory::to_write() {
        Ok(_) => common(name),
        Err(_) => Ok(memfd_create(c"corewise", MFdFlags::MFD_CLOEXEC)?.into()),
    }
}

/// Opens a file that all runs of this user share; fails without a runtime directory.
pub fn common(name: &str) -> io::Result<File> {
    let directory = Directory::to_write().map_err(io::Error::other)?;
    directory.open_file(name, OFlag::O_RDWR | OFlag::O_CREAT)
}

/// A directory that nobody but its user can enter.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    descriptor: OwnedFd,
}

impl Directory {
    /// Returns the directories in which it may be: the user's runtime directory, and root's if it had
    /// none.
    pub fn candidates() -> Vec<PathBuf> {
        let of_user =
            std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
        let of_root = geteuid().is_root().then(|| PathBuf::from("/run"));
        of_user.into_iter().chain(of_root).collect()
    }

    /// Returns the first usable directory, or why there is none.
    pub fn to_write() -> Result<Directory, String> {
        let mut why_not = "XDG_RUNTIME_DIR is not set".to_owned();
        for parent in Directory::candidates() {
            let path = parent.join("corewise");
            let made = owned_by_user(&parent).and_then(|()| {
                match std::fs::DirBuilder::new().mode(0o700).create(&path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                    _ => Directory::open(path.clone()),
                }
            });
            match made {
                Ok(directory) => return Ok(directory),
                Err(error) => why_not = format!("cannot use {}: {error}", path.display()),
            }
        }
        Err(why_not)
    }

    /// Opens the directory if nobody else can enter it.
    pub fn open(path: PathBuf) -> io::Result<Directory> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let descriptor = open(&path, flags, Mode::empty())?;
        let metadata = File::from(descriptor.try_clone()?).metadata()?;
        if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            return Err(io::Error::other("it is not this user's alone (chmod 700)"));
        }
        Ok(Directory { path, descriptor })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file in it, or creates one that nobody else can read.
    pub fn open_file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(openat(&self.descriptor, name, flags, Mode::from_bits_truncate(0o600))?.into())
    }
}

/// Checks that a directory belongs to this user, and that nobody else can write to it.
pub fn owned_by_user(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.uid() != geteuid().as_raw() || metadata.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} is not this user's", path.display())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_that_others_can_enter_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("corewise");
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        assert!(Directory::open(path.clone()).is_ok());
        for mode in [0o755, 0o770, 0o701] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert!(Directory::open(path.clone()).is_err(), "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        let link = parent.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(Directory::open(link).is_err());
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(Directory::open(path).is_err());
        }
    }
}
