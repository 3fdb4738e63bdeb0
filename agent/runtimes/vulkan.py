"""The GPUs that Vulkan shows, for runtimes whose library does not name the one that it computes on."""

import ctypes

_SOFTWARE = " (software)"
# Source: vulkan_core.h. VkPhysicalDeviceProperties begins with five 32-bit numbers, the last of which is the type, and a name of 256 bytes.
_INSTANCE_CREATE_INFO, _TYPE_CPU = 1, 4


def gpu_names() -> list[str]:
    """Return the names of the GPUs; where a processor only plays one, its name ends in `(software)`. Empty without Vulkan."""
    try:
        library = ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return []
    instance, count = ctypes.c_void_p(), ctypes.c_uint32()
    # VkInstanceCreateInfo without extensions: 64 bytes, of which all but the type are 0.
    request = (ctypes.c_uint32 * 16)(_INSTANCE_CREATE_INFO)
    if library.vkCreateInstance(request, None, ctypes.byref(instance)) != 0:
        return []
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), None)
    devices = (ctypes.c_void_p * count.value)()
    library.vkEnumeratePhysicalDevices(instance, ctypes.byref(count), devices)
    names = [_name(library, device) for device in devices if device]
    library.vkDestroyInstance(instance, None)
    return names


def gpu_facts() -> dict[str, str]:
    """Return what a record holds of the GPUs: `gpu`, or `gpus_present` where several are there and which one computes is not known."""
    names = gpu_names()
    return {"gpu" if len(names) == 1 else "gpus_present": "; ".join(names)} if names else {}


def _name(library: ctypes.CDLL, device: int) -> str:
    properties = ctypes.create_string_buffer(4096)
    library.vkGetPhysicalDeviceProperties(ctypes.c_void_p(device), properties)
    kind = int.from_bytes(properties.raw[16:20], "little")
    return properties.raw[20:276].partition(b"\0")[0].decode("utf-8", "replace") + (_SOFTWARE if kind == _TYPE_CPU else "")
