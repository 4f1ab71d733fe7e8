# The command `corewise` for Nix: `nix build '.?dir=contrib'`. Never tried with Nix so far.
{
  description = "Hardware-aware thread scheduling for Linux";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { nixpkgs, ... }:
    let
      forAll = nixpkgs.lib.genAttrs [ "x86_64-linux" "aarch64-linux" ];
    in {
      packages = forAll (system:
        let pkgs = nixpkgs.legacyPackages.${system};
        in {
          default = pkgs.rustPlatform.buildRustPackage {
            pname = "corewise";
            version = "0.2.0";
            src = ../.;
            cargoLock.lockFile = ../Cargo.lock;
            cargoBuildFlags = [ "--bin" "corewise" ];
            # The tests watch a real machine, which a sandbox is not.
            doCheck = false;
            # Programs in the kernel are no place for the wrapper's hardening options.
            hardeningDisable = [ "zerocallusedregs" "stackprotector" ];
            nativeBuildInputs = [ pkgs.pkg-config pkgs.clang_19 ];
            buildInputs = [ pkgs.hwloc pkgs.libelf pkgs.zlib pkgs.udev ];
          };
        });
    };
}
